"""The healthy variations: runs that differ in numbers or kernels only, and how near outputs must be."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
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
    modes: tuple[str, ...] = ("fwd", "train", "steps", "gen")
    words_only: bool = False
    """Whether it is for models of transformers that are given words alone."""


_PLAIN = Setting()
_AGAIN = Setting(checkpointing=True)
_EXACT, _HALF, _COARSE = 2e-4, 0.03, 0.2
_TRAINING: Final = ("train", "steps")


def _mask(batch: dict[str, Any], places: slice) -> dict[str, Any]:
    mask = torch.ones_like(batch["input_ids"])
    mask[1, places] = 0
    return {**batch, "attention_mask": mask}


def pad_left(batch: dict[str, Any]) -> dict[str, Any]:
    """Let the second row begin with three words that are padding."""
    return _mask(batch, slice(0, 3))


def pad_right(batch: dict[str, Any]) -> dict[str, Any]:
    """Let the second row end with three words that are padding."""
    return _mask(batch, slice(-3, None))


def _padded(kind: str, pad: Callable[[dict[str, Any]], dict[str, Any]]) -> list[Variation]:
    golden, modes = Setting(batch=pad), ("fwd", "train", "steps")
    return [
        Variation(kind, golden, golden.but(dtype="bf16"), _COARSE, modes=modes, words_only=True),
        Variation(f"{kind}_blocked", golden, golden.but(blocked=True), _EXACT, modes=modes, words_only=True),
    ]


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
        *_padded("h_pad_left", pad_left),
        *_padded("h_pad_right", pad_right),
        Variation(
            "h_checkpoint", _AGAIN, _AGAIN.but(dtype="bf16"), _COARSE, modes=_TRAINING, words_only=True
        ),
        Variation("h_tf32", _PLAIN, Setting(coarse="nearest"), _HALF),
        Variation("h_tf32_cut", _PLAIN, Setting(coarse="cut"), _HALF),
        Variation("h_tf32_convolutions", _PLAIN, Setting(coarse="convolutions"), _HALF),
        Variation("h_wbf16", _PLAIN, Setting(dtype="wbf16"), _COARSE, modes=()),
        Variation("h_wint8", _PLAIN, Setting(dtype="wint8"), _COARSE, modes=()),
        Variation("h_checkpoint_one", _PLAIN, _AGAIN, _EXACT, modes=_TRAINING, words_only=True),
    )
}
WEIGHTS: Final = {
    "h_bf16": 4,
    "h_fp16": 3,
    "h_autocast": 2,
    "h_sdpa_bf16": 2,
    "h_blocked": 2,
    "h_sdpa": 2,
    "h_wbf16": 0,
    "h_wint8": 0,
}
"""How often a variation is drawn; once, if it is not named. Of weights rounded throughout none is healthy."""

RANK_VARIATIONS: Final = {
    "r_rerun": "h_rerun",
    "r_bf16": "h_bf16",
    "r_fp16": "h_fp16",
    "r_blocked": "h_blocked",
    "r_bf16_rerun": "h_bf16_rerun",
}
"""Healthy variations of what two ranks do, by the variation of a model that each of them is run with."""


def fits(variation: Variation, architecture: Architecture) -> bool:
    """Tell whether a variation can be tried on an architecture."""
    if variation.pictures_only and architecture.kind != "vision":
        return False
    if variation.words_only and architecture.maker != "AutoModelForCausalLM":
        return False
    return not (variation.is_sdpa and architecture.maker == "custom")
