"""Over how many ranks two models are spread, as people say it: "2" for both, "1:2" for golden and target."""

from firstdrift.errors import SettingsError
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
    if all(size is None for size in sizes):
        return None, None
    sides: list[list[int]] = [[], []]
    for option, given in zip(OPTIONS, sizes, strict=True):
        parts = ("1" if given is None else given).split(":")
        if len(parts) > _SIDES or not all(part.isdecimal() and int(part) for part in parts):
            raise SettingsError(
                Message.of("matching.error.no_size", option=option, given=given),
                hint=Message.of("matching.hint.sizes"),
            )
        sides[0].append(int(parts[0]))
        sides[1].append(int(parts[-1]))
    return Layout(*sides[0]), Layout(*sides[1])


def write_layouts(golden: Layout | None, target: Layout | None) -> dict[str, str]:
    """Say for each option what `read_layouts` reads; options that say nothing are left out."""
    if golden is None and target is None:
        return {}
    golden, target = golden or Layout(), target or Layout()
    pairs = {
        "tp": (golden.tensor, target.tensor),
        "pp": (golden.pipeline, target.pipeline),
        "vpp": (golden.virtual, target.virtual),
    }
    said = {option: f"{one}:{other}" if one != other else f"{one}" for option, (one, other) in pairs.items()}
    return {option: text for option, text in said.items() if text != "1"} or {"tp": "1"}
