"""Tell whether a healthy variation is healthy: outputs must be as near as its rounding allows."""

from pathlib import Path

import torch
from architectures import Built
from forking import Answer, forked
from modes import alone, run
from setting import Setting
from variations import VARIATIONS, Variation


def checked_healthy(built: Built, mode: str, variation: Variation, log: Path) -> Answer:
    """Run a model both ways; say how far apart the outputs are, or that they are too far."""
    checked = forked(lambda: _nearness(built, mode, variation, log), log)
    if "failed" in checked or checked["apart"] <= variation.near:
        return checked
    return {"failed": "not healthy", **checked}


def _nearness(built: Built, mode: str, variation: Variation, log: Path) -> Answer:
    both = [
        forked(lambda setting=setting: outputs_of(built, mode, setting), log)
        for setting in (variation.golden, variation.target)
    ]
    failed = next((one for one in both if "failed" in one), None)
    if failed:
        return failed
    golden, target = (torch.tensor(one["values"]) for one in both)
    apart = float((golden - target).norm() / golden.norm().clamp_min(1e-30))
    answer = {"apart": apart}
    if variation.is_sdpa and variation.target.dtype != "fp32":
        exact = Variation("exact", Setting(), Setting(attention="sdpa"), 0.0)
        answer["apart in fp32"] = _nearness(built, mode, exact, log).get("apart", float("inf"))
        answer["apart"] = apart if answer["apart in fp32"] <= VARIATIONS["h_sdpa"].near else float("inf")
    return answer


def outputs_of(built: Built, mode: str, setting: Setting) -> Answer:
    """Return all numbers that a run gives."""
    outputs = torch.cat([one.flatten() for one in run(built, mode, setting, alone)])
    if not torch.isfinite(outputs).all():
        return {"failed": "not finite"}
    return {"values": outputs.tolist()}
