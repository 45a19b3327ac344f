"""The healthy variations: runs that differ in numbers or kernels only, and how near outputs must be."""

from dataclasses import dataclass
from typing import Final

from catalogue import Architecture
from setting import Setting


@dataclass(frozen=True)
class Variation:
    """Two settings that should give the same but for rounding."""

    kind: str
    golden: Setting
    target: Setting
    near: float
    """How far apart outputs may be, relative to their size."""
    pictures_only: bool = False
    is_sdpa: bool = False
    trains: bool = True


_PLAIN = Setting()
_EXACT, _HALF, _COARSE = 2e-4, 0.03, 0.2


VARIATIONS: Final[dict[str, Variation]] = {
    one.kind: one
    for one in (
        Variation("h_bf16", _PLAIN, Setting(dtype="bf16"), _COARSE),
        Variation("h_fp16", _PLAIN, Setting(dtype="fp16"), _HALF),
        Variation("h_sdpa", _PLAIN, Setting(attention="sdpa"), _EXACT, is_sdpa=True),
        Variation("h_autocast", _PLAIN, Setting(autocast=True), _COARSE),
        Variation("h_fp64", _PLAIN, Setting(dtype="fp64"), _EXACT),
        Variation("h_blocked", _PLAIN, Setting(blocked=True), _EXACT),
        Variation("h_sdpa_bf16", _PLAIN, Setting(dtype="bf16", attention="sdpa"), _COARSE, is_sdpa=True),
        Variation("h_fp16_vs_bf16", Setting(dtype="bf16"), Setting(dtype="fp16"), _COARSE),
        Variation("h_bf16_blocked", Setting(dtype="bf16"), Setting(dtype="bf16", blocked=True), _COARSE),
        Variation("h_fp16_blocked", Setting(dtype="fp16"), Setting(dtype="fp16", blocked=True), _HALF),
        Variation("h_bf16_blocked_too", _PLAIN, Setting(dtype="bf16", blocked=True), _COARSE),
        Variation("h_fp64_golden", Setting(dtype="fp64"), _PLAIN, _EXACT),
        Variation("h_rerun", _PLAIN, _PLAIN, _EXACT),
        Variation("h_bf16_rerun", Setting(dtype="bf16"), Setting(dtype="bf16"), _EXACT),
        Variation("h_channels_last", _PLAIN, Setting(channels_last=True), _EXACT, pictures_only=True),
    )
}
WEIGHTS: Final = {"h_bf16": 4, "h_fp16": 3, "h_autocast": 2, "h_sdpa_bf16": 2, "h_blocked": 2, "h_sdpa": 2}
"""How often a variation is drawn; once, if it is not named."""


def fits(variation: Variation, architecture: Architecture) -> bool:
    """Tell whether a variation can be tried on an architecture."""
    if variation.pictures_only and architecture.kind != "vision":
        return False
    return not (variation.is_sdpa and architecture.maker == "custom")
