"""JSON that strict parsers read and that keeps NaN and infinities, as strings.

{"mean": NaN}   →   {"mean": "NaN"}      likewise "Infinity" and "-Infinity"
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")


def to_json(value: object, *, indent: int | None = None) -> str:
    """Write a value of dicts, lists, strings, numbers, booleans and None as strict JSON.

    The text can be encoded: bytes of a file name that are no UTF-8 stand as escapes.
    """
    text = json.dumps(spelled_out(value), allow_nan=False, ensure_ascii=False, indent=indent)
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def spelled_out(value: Any) -> Any:  # noqa: ANN401
    """Replace NaN and infinities by their names, everywhere inside."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): spelled_out(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [spelled_out(item) for item in value]
    return value
