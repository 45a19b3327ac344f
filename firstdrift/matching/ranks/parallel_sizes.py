"""Over how many ranks two models are spread, as people say it: "2" for both, "1:2" for golden and target."""

from msgspec.structs import astuple

from firstdrift.errors import SettingsError
from firstdrift.groups import known
from firstdrift.model.slice import Layout
from firstdrift.wording.message import Message

OPTIONS = ("tp", "pp", "vpp")
"""Tensor-parallel ranks, pipeline stages, and chunks of layers of a stage: in the order of `Layout`."""

_SIDES = 2


def read_layouts(*sizes: str | None) -> tuple[Layout | None, Layout | None]:
    """Read the sizes, one text for each option; None for both models if nothing is said.

    Raises:
        SettingsError: a text is neither a number nor two.
    """
    if not known(sizes):
        return None, None
    golden, target = zip(*map(_read_size, OPTIONS, sizes), strict=True)
    return Layout(*golden), Layout(*target)


def _read_size(option: str, given: str | None) -> tuple[int, int]:
    parts = ("1" if given is None else given).split(":")
    if len(parts) > _SIDES or not all(part.isdecimal() and int(part) for part in parts):
        raise SettingsError(
            Message.of("matching.error.no_size", option=option, given=given),
            hint=Message.of("matching.hint.sizes"),
        )
    return int(parts[0]), int(parts[-1])


def write_layouts(golden: Layout | None, target: Layout | None) -> dict[str, str]:
    """Say for each option what `read_layouts` reads; options that say nothing are left out."""
    if not known((golden, target)):
        return {}
    sizes = zip(astuple(golden or Layout()), astuple(target or Layout()), strict=True)
    texts = (":".join(dict.fromkeys(map(str, of_sides))) for of_sides in sizes)
    said = zip(OPTIONS, texts, strict=True)
    return {option: text for option, text in said if text != "1"} or {"tp": "1"}
