"""Take the lines of a DebugMode log apart.

    [nn.Mod] Llama.model.layers.0
      aten::addmm(t$2: f32[8], t$3: f32[2, 4], t$1: f32[4, 8])  ->  t$4: f32[2, 8]  # {'hash': 4.57, …}

`hash` is the sum of the absolute values of a tensor (a fraction), or the exclusive or of its bits (a whole
number); `input_hash` has the same of its arguments: `((2.5, 3.7, None), {'dim': None})`.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

_LONGEST: Final = 200_000
_BITS_OF_HASH: Final = 64
_MODULE: Final = re.compile(r"(?P<indent> *)\[nn\.Mod\] (?P<path>\S.*)")
_CALL: Final = re.compile(
    r"(?P<indent> *)(?P<name>(?:\[triton\] )?[A-Za-z_][\w.:]*)\((?P<rest>.*)", re.DOTALL
)
_TENSOR: Final = re.compile(
    r"(?:(?P<key>[A-Za-z_]\w*)=)?(?:dt|ft|lt|t)(?:\$\d+)?: (?P<dtype>[a-z]+\d*\w*)\[(?P<shape>[0-9, ]*)\]"
    r"(?P<placement>\|.*)?",
    re.DOTALL,
)
_ARGUMENT: Final = re.compile(r"(?P<key>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_NOT_FINITE: Final = re.compile(r"\b(nan|inf)\b")
_ARROW: Final = "  ->  "
_LOG: Final = "  # {"
MARK: Final = re.compile(
    rb"^ *(?:\[nn\.Mod\] \S|[a-z_]+::[\w.]{1,80}\((?:[^\n]{0,200}?\b)?(?:dt|ft|lt|t)(?:\$\d+)?: [a-z]+\d+\[)",
    re.MULTILINE,
)

_DTYPES: Final = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "b8": "bool",
    "c64": "complex64",
    "c128": "complex128",
}


class Value(Struct, frozen=True):
    """A tensor or an argument of a call.

    Attributes:
        key: its place or name.
        dtype: numpy's name of a tensor's; "" for an argument.
        shape: of a tensor, as it is written.
        text: an argument as it is written; of a tensor how it is dealt out over ranks.
        hash: what was recorded of a tensor's values: a number as text; None if nothing was.
    """

    key: str
    dtype: str
    shape: str
    text: str
    hash: str | None = None


class Line(Struct, frozen=True):
    """A line of a log: a module that is entered, or a call.

    Attributes:
        indent: how many blanks it begins with.
        name: path of the module, or name of the operator.
        is_module: which of the two.
        inputs: what the call takes.
        outputs: what it gives.
    """

    indent: int
    name: str
    is_module: bool
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()


def parse_line(text: str) -> Line | None:
    """Take a line apart; None if it is neither a module nor a call."""
    text = text.rstrip()
    if len(text) > _LONGEST:
        return None
    if match := _MODULE.fullmatch(text):
        return Line(len(match["indent"]), match["path"], is_module=True)
    match = _CALL.fullmatch(text)
    if match is None:
        return None
    rest, _, log = match["rest"].rpartition(_LOG) if _LOG in match["rest"] else (match["rest"], "", "")
    given, _, made = rest.partition(_ARROW)
    if not given.rstrip().endswith(")"):
        return None
    hashes = _hashes("{" + log) if log else {}
    inputs = _values(given.rstrip()[:-1], *_of_inputs(hashes.get("input_hash")))
    outputs = _without_list(_values(made.strip(), hashes.get("hash"), {}))
    return Line(len(match["indent"]), match["name"], is_module=False, inputs=inputs, outputs=outputs)


def _without_list(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return the outputs of a call that gave a list of them by their places in it."""
    is_list = all(value.key.startswith("0.") for value in values)
    return tuple(replace(value, key=value.key[2:]) for value in values) if is_list else values


def _of_inputs(recorded: object) -> tuple[object, dict[Any, Any]]:
    match recorded:
        case (list() | tuple() as places, dict(names)):
            return list(places), names
    return None, {}


def _hashes(text: str) -> dict[str, Any]:
    try:
        value = ast.literal_eval(_NOT_FINITE.sub(r"'\1'", text))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _values(text: str, hashes: object, by_name: dict[Any, Any]) -> tuple[Value, ...]:
    """Return what stands between commas, lists opened, each with its hash."""
    parts = list(_split(text))
    single = len(parts) == 1 and (not isinstance(hashes, list | tuple) or parts[0][:1] in "[(")
    of_places = [hashes] if single else list(hashes) if isinstance(hashes, list | tuple) else []
    found: list[Value] = []
    for at, part in enumerate(parts):
        named = _ARGUMENT.fullmatch(part)
        key = named["key"] if named and "(" not in part.partition("=")[0] else str(at)
        own = by_name.get(key) if key in by_name else (of_places[at] if at < len(of_places) else None)
        found += _opened(key, named["value"] if named else part, own)
    return tuple(found)


def _opened(key: str, text: str, own: object) -> Iterator[Value]:
    """Yield a value, or the tensors of a list with their places behind the key."""
    is_list = text[:1] in "[(" and text[-1:] in "])" and _TENSOR.search(text)
    if match := _TENSOR.fullmatch(text):
        yield _tensor(key, match, own)
    elif is_list:
        inner = list(own) if isinstance(own, list | tuple) else []
        for at, part in enumerate(_split(text[1:-1])):
            if match := _TENSOR.fullmatch(part.strip("'")):
                yield _tensor(f"{key}.{at}", match, inner[at] if at < len(inner) else None)
    elif text:
        yield Value(key, "", "", text)


def _tensor(key: str, match: re.Match[str], recorded: object) -> Value:
    dtype = _DTYPES.get(match["dtype"], match["dtype"])
    return Value(key, dtype, match["shape"], match["placement"] or "", _hash(recorded))


def _hash(recorded: object) -> str | None:
    if isinstance(recorded, bool) or not isinstance(recorded, int | float | str):
        return None
    if isinstance(recorded, int) and recorded.bit_length() > _BITS_OF_HASH:
        return None
    return str(recorded) if not isinstance(recorded, str) or recorded in ("nan", "inf") else None


def _split(text: str) -> Iterator[str]:
    """Yield what stands between the commas that are in no bracket."""
    depth, start = 0, 0
    for at, sign in enumerate(text):
        if sign in "[({":
            depth += 1
        elif sign in "])}":
            depth -= 1
        elif sign == "," and depth <= 0:
            yield text[start:at].strip()
            start = at + 1
    if text[start:].strip():
        yield text[start:].strip()
