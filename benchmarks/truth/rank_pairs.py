"""Make pairs of dumps of two ranks: a model that is spread over them, or two copies of it.

    tp 1:2   golden is whole, target is spread       tp 2:2   both are spread
    dp 2:2   each rank has a copy, and data of its own

Ranks are processes that talk by gloo, and the real msprobe writes what each does.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch
from architectures import Built, build
from catalogue import architectures
from dice import Dice
from effects import effect_of
from faults_of_ranks import OTHER_DATA, RANK_FAULTS, plant_on_one
from forking import Answer, forked, forked_together
from measuring import ROUNDINGS, measured, seen_of
from modes import Wanted, alone, dump, run, tidy
from nearness import checked_healthy
from plan import Job
from planting import Truth, observed
from setting import ROUNDOFF, Setting
from sharding import RANKS, ColumnParallelLinear, RowParallelLinear, average_gradients, spread
from torch import nn
from variations import RANK_VARIATIONS, VARIATIONS, Variation

_SAME: Final = 2e-4
"""How far apart the outputs of a model and of its shards may be, in fp32, relative to their size."""


@dataclass
class Planted:
    """What a rank has after the fault was planted, or without one."""

    built: Built
    setting: Setting
    truth: Truth


def of_rank(job: Job, rank: int, *, faulty: bool) -> Planted:
    """Build what a rank has."""
    built = build(architectures()[job.arch], job.seed)
    if job.ranks.startswith("tp"):
        whole = build(architectures()[job.arch], job.seed).model
        spread(built.model, rank)
    else:
        whole, built.batch = None, data_of(built.batch, rank)
    setting = Setting(before_update=average_gradients if job.ranks.startswith("dp") else None)
    if not faulty:
        return Planted(built, setting, Truth(None, ()))
    site = observed(built, job.mode, Dice("place", job.name), setting, lambda: built.model(**built.batch))
    site.task, site.level, site.rank, site.whole = job.task, job.level, rank, whole
    if job.kind in RANK_FAULTS:
        return Planted(built, site.setting, RANK_FAULTS[job.kind].plant(site))
    truth = plant_on_one(job.kind, site)
    if job.kind == OTHER_DATA and rank in truth.ranks:
        built.batch = data_of(built.batch, RANKS)
    return Planted(built, site.setting, truth)


def data_of(batch: dict[str, Any], rank: int) -> dict[str, Any]:
    """Return the data of a copy: the words are others, numbers have other places."""

    def other(name: str, value: torch.Tensor) -> torch.Tensor:
        if value.is_floating_point() and not name.endswith("mask"):
            return value.roll(3 * rank, -1)
        return (value - 3 + 29 * rank) % 87 + 3 if name.endswith("input_ids") else value

    return {name: other(name, value) for name, value in batch.items()}


def together(do: Callable[[int], Answer], log: Path) -> list[Answer]:
    """Do something on all ranks."""
    with TemporaryDirectory() as own:

        def on(rank: int) -> Answer:
            store = f"file://{own}/store"
            torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS)
            return do(rank)

        return forked_together([lambda rank=rank: on(rank) for rank in range(RANKS)], log)


def failure(answers: list[Answer]) -> Answer | None:
    """Return what failed."""
    return next((one for one in answers if "failed" in one), None)


def make_of_ranks(job: Job, folder: Path, log: Path) -> Answer:
    """Write the two dumps; return the truth of the pair, or why there is none."""
    if job.ranks.startswith("tp"):
        agreed = _agreement(job, log)
        if "failed" in agreed:
            return agreed
    settings = Setting(), Setting(dtype=job.dtype)
    if job.healthy:
        variation = VARIATIONS[RANK_VARIATIONS[job.kind]]
        settings = variation.golden, variation.target
        told = _healthy(job, variation, log)
    else:
        told = _effect(job, log)
    if "failed" in told:
        return told
    for side, setting in zip(("golden", "target"), settings, strict=True):
        failed = _dump_side(job, side, setting, folder, log)
        if failed:
            return failed
    return told


def _healthy(job: Job, variation: Variation, log: Path) -> Answer:
    """Tell whether a variation is healthy for the whole model, or for each of its copies."""
    if job.ranks.startswith("tp"):
        models = [build(architectures()[job.arch], job.seed)]
    else:
        models = [of_rank(job, rank, faulty=False).built for rank in range(RANKS)]
    checked = [checked_healthy(built, job.mode, variation, log) for built in models]
    failed = failure(checked)
    return failed or {"truth": {"healthy": True}, "apart": max(one["apart"] for one in checked)}


def _agreement(job: Job, log: Path) -> Answer:
    """Tell whether the ranks give what the whole model gives, in fp32, forward and backward.

    A parameter that both ranks have must have its whole gradient on each, where golden is whole: a norm of
    single heads has not.
    """
    trains = job.mode in {"train", "steps"} and job.ranks.endswith("1:2")

    def whole() -> Answer:
        return _given(build(architectures()[job.arch], job.seed), trains=trains)

    def part(rank: int) -> Answer:
        return _given(of_rank(job, rank, faulty=False).built, trains=trains)

    answers = [forked(whole, log), *together(part, log)]
    failed = failure(answers)
    if failed:
        return failed
    one, *others = answers
    if all(_is_same(one["outputs"], other["outputs"]) and _agree(one, other) for other in others):
        return {}
    return {"failed": "the ranks do not give what the whole gives"}


def _given(built: Built, *, trains: bool) -> Answer:
    """Return the outputs of a model, and the gradients of its parameters."""
    outputs = run(built, "train" if trains else "fwd", Setting(), alone)
    gradients = {
        name: one.grad.flatten().tolist()
        for name, one in built.model.named_parameters()
        if one.grad is not None
    }
    return {"outputs": torch.cat([one.flatten() for one in outputs]).tolist(), "gradients": gradients}


def _agree(whole: Answer, part: Answer) -> bool:
    """Tell whether parameters that are not cut have the gradients of the whole."""
    both = ((whole["gradients"].get(name, []), own) for name, own in part["gradients"].items())
    return all(len(one) != len(own) or _is_same(one, own) for one, own in both)


def _is_same(one: list[float], other: list[float]) -> bool:
    return len(one) == len(other) and effect_of([torch.tensor(one)], [torch.tensor(other)])[0] <= _SAME


def _effect(job: Job, log: Path) -> Answer:
    answers = together(lambda rank: _effect_on(job, rank), log)
    failed = failure(answers)
    if failed:
        return failed
    worst = max((one for one in answers if "effect" in one), key=lambda one: one["effect"])
    limit = ROUNDINGS * ROUNDOFF[job.dtype]
    if worst["effect"] <= limit:
        return {"failed": "below the noise", **worst}
    if job.task == "statistics" and worst["in statistics"] <= limit:
        return {"failed": "below the noise of statistics", **worst}
    return worst


def _effect_on(job: Job, rank: int) -> Answer:
    truth = of_rank(job, rank, faulty=True).truth.written()
    clean, planted = of_rank(job, rank, faulty=False), of_rank(job, rank, faulty=True)
    seen = []
    for one in (clean, planted):
        torch.manual_seed(job.seed)
        seen.append(seen_of(one.built, job, one.setting, truth).given)
    if rank not in truth["ranks at fault"]:
        return {}
    if job.ranks.endswith("1:2"):
        truth |= _untold(job, module_of(planted.built, truth), truth)
    return measured(job, truth, *seen)


def module_of(built: Built, truth: dict[str, Any]) -> nn.Module:
    """Return the module at fault."""
    return built.model.get_submodule(truth["module"])


def _untold(job: Job, module: nn.Module, truth: dict[str, Any]) -> dict[str, Any]:
    """Return what the whole cannot show: which rank is off, and of statistics of a sum, in which module.

    Nothing tells on which rank a part of a sum is off; statistics of a sum do not follow from its parts.
    """
    is_sum = isinstance(module, RowParallelLinear) or bool(truth.get("backward"))
    if job.task != "statistics":
        return {"rank untold": True} if is_sum and job.kind == "tp_kernel" else {}
    if is_sum:
        return {"rank untold": True, "around": truth["module"].rpartition(".")[0]}
    return {"rank untold": True} if isinstance(module, ColumnParallelLinear) else {}


def _dump_side(job: Job, side: str, setting: Setting, folder: Path, log: Path) -> Answer | None:
    wanted = Wanted(job.task, job.level, job.mode)
    if side == "golden" and job.ranks.endswith("1:2"):

        def alone_dumped() -> Answer:
            torch.manual_seed(job.seed)
            dump(build(architectures()[job.arch], job.seed), wanted, setting, folder / side)
            return {}

        return failure([forked(alone_dumped, log)])

    def dumped(rank: int) -> Answer:
        one = of_rank(job, rank, faulty=side == "target" and not job.healthy)
        own = replace(setting, **_changes(one.setting))
        torch.manual_seed(job.seed)
        dump(one.built, replace(wanted, rank=rank, several=True), own, folder / side)
        return {}

    failed = failure(together(dumped, log))
    if not failed:
        tidy(folder / side)
    return failed


def _changes(setting: Setting) -> dict[str, Any]:
    """Return what a fault, or the kind of ranks, changes in the way of running a model."""
    return {"before_update": setting.before_update, "at_step": setting.at_step}
