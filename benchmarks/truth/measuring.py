"""Plant the fault of a pair, and measure how far it moves what its module gives."""

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from architectures import Built, build
from catalogue import architectures
from dice import Dice
from effects import effect_of
from faults import FAULTS
from forking import Answer, forked
from kernels import Clock
from modes import MSIT, Wanted, alone, dump, run
from plan import Job
from planting import SOURCE, Site, Truth, floats, observed
from setting import ROUNDOFF, Setting
from torch import Tensor, nn

ROUNDINGS: Final = 8
"""A fault whose effect is fewer unit roundoffs is below the noise."""
BIG: Final = 1e9
_NUMBERED: Final = ("wrong_ids", "dp_other_data")
"""Kinds of other input that statistics show: a permuted batch has the same."""


@dataclass
class Seen:
    """What a run gave: the module at fault, as "", and those inside it; and the model in each step."""

    given: dict[str, list[Any]] = field(default_factory=lambda: {"": []})
    steps: list[int] = field(default_factory=list)
    """In which step the module at fault gave each of its results."""
    outputs: list[Tensor] = field(default_factory=list)


def plant(job: Job, built: Built) -> tuple[Site, Truth]:
    """Plant the fault of a pair into a model."""
    site = observed(built, job.mode, Dice("place", job.name), Setting(), lambda: built.model(**built.batch))
    site.task, site.level = job.task, job.level
    truth = FAULTS[job.kind].plant(site)
    if job.level == "msit":  # without weights, the first that is wrong is what they give
        truth.cls = tuple(dict.fromkeys((*truth.cls, *SOURCE)))
    return site, truth


def effect(job: Job, built: Built) -> Answer:
    """Measure how far the fault moves what its module gives, in fp32, and its statistics."""
    dry = forked(lambda: {"truth": plant(job, built)[1].written()}, Path(os.devnull))
    if "failed" in dry:
        return dry
    truth = dry["truth"]
    if job.level in MSIT and truth["module"] == "":  # it gives no tensor, but an object
        return {"failed": "not in a dump of msit"}
    clean = seen_of(built, job, Setting(), truth)
    _restore(built, job)
    site, _ = plant(job, built)
    planted = seen_of(built, job, site.setting, truth)
    if job.level in MSIT:
        tokens = _tokens(job, clean, planted)
        if job.task == "statistics" and tokens.pop("told", None) != tokens.get("token"):
            return {"failed": "below the noise of statistics in its first token"}
        truth |= tokens
    return measured(job, truth, clean.given, planted.given)


def measured(
    job: Job, truth: dict[str, Any], clean: dict[str, list[Any]], planted: dict[str, list[Any]]
) -> Answer:
    if truth.get("optimizer"):
        return _optimizer_effect(truth, clean[""], planted[""])
    if truth.get("input"):
        apart, told = max(
            effect_of([one], [other]) for one, other in zip(clean[""], planted[""], strict=True)
        )
        return {"truth": truth, "effect": apart, "in statistics": told if job.kind in _NUMBERED else 0.0}
    if job.kind == "frozen":
        return {"truth": truth, "effect": BIG, "in statistics": BIG}
    apart, told = effect_of(clean.pop(""), planted.pop(""))
    limit = ROUNDINGS * ROUNDOFF["fp32"]
    same = [name for name, given in clean.items() if effect_of(given, planted.get(name, []))[0] <= limit]
    if same:
        truth["clean"] = same
    return {"truth": truth, "effect": min(apart, BIG), "in statistics": min(told, BIG)}


def _tokens(job: Job, clean: Seen, planted: Seen) -> dict[str, int]:
    """Return in which token the module at fault is off first, in which its statistics, and the logits."""
    limit = ROUNDINGS * ROUNDOFF[job.dtype]
    effects = [
        effect_of([one], [other]) for one, other in zip(clean.given[""], planted.given[""], strict=False)
    ]
    logits = [effect_of([one], [other])[0] for one, other in zip(clean.outputs, planted.outputs, strict=True)]

    def first_off(steps: Iterable[int], far: Iterable[float]) -> int | None:
        return next((step for step, one in zip(steps, far, strict=False) if one > limit), None)

    found = {
        "token": first_off(clean.steps, (apart for apart, _ in effects)),
        "told": first_off(clean.steps, (told for _, told in effects)),
        "logits": first_off(range(len(logits)), logits),
    }
    if job.task != "statistics":
        found.pop("told")
    return {name: token for name, token in found.items() if token is not None}


def _restore(built: Built, job: Job) -> None:
    """Build the model anew: the optimizer has moved its weights."""
    fresh = build(architectures()[job.arch], job.seed)
    built.model, built.batch = fresh.model, fresh.batch


def _optimizer_effect(truth: dict[str, Any], clean: list[Any], planted: list[Any]) -> Answer:
    limit = ROUNDINGS * ROUNDOFF["fp32"]
    for step, (one, other) in enumerate(zip(clean, planted, strict=True)):
        apart, told = effect_of(list(one), list(other))
        if apart > limit and step + 1 < len(clean):
            truth["step"] = step + 1
            return {"truth": truth, "effect": apart, "in statistics": told}
    return {"truth": truth, "effect": 0.0, "in statistics": 0.0}


def seen_of(built: Built, job: Job, setting: Setting, truth: dict[str, Any]) -> Seen:
    """Run the model; return what the module at fault gave, and each inside it.

    Or its gradients, or the losses, or the weights after each step, as the fault has it.
    """
    seen = Seen()
    model, name, watch = built.model, truth["module"], lambda *at: seen.outputs.append(at[2].detach().clone())
    kept = seen.given[""]
    if truth.get("optimizer"):
        watch = lambda *at: kept.append([one.detach().clone() for one in at[1].parameters()])  # noqa: E731
    elif truth.get("ops") and not name:
        watch = lambda *at: kept.append(at[2].detach().clone())  # noqa: E731
    elif truth.get("backward"):
        model.get_submodule(name).register_full_backward_hook(
            lambda _, given, __: kept.append(given[0].clone() if given[0] is not None else torch.zeros(1))
        )
    else:
        only_lists = job.level in MSIT and bool(name)
        _listen(model.get_submodule(name) if name else model, name or "", seen, only_lists=only_lists)
    run(built, job.mode, setting, alone, watch)
    return seen


def _listen(module: nn.Module, place: str, seen: Seen, *, only_lists: bool) -> None:
    for inner, one in module.named_modules():
        within = f"{place}.{inner}" if inner and place else ""
        if inner and not within:
            continue
        seen.given[within] = []

        def heard(_: nn.Module, __: object, result: Any, within: str = within) -> None:  # noqa: ANN401
            seen.given[within].append(_kept(result, only_lists=only_lists))
            if not within:
                seen.steps.append(Clock.step)

        one.register_forward_hook(heard)


def _kept(result: Any, *, only_lists: bool) -> list[Tensor]:  # noqa: ANN401
    if only_lists and isinstance(result, dict):
        return []
    return [one.detach().clone() for one in floats(result)]


def operators(job: Job, built: Built, setting: Setting, truth: dict[str, Any], folder: Path) -> Answer:
    """Return the operators that run in the module at fault: an L1 dump names no modules."""
    site, _ = plant(job, built)
    dump(built, Wanted("statistics", "mix", job.mode), planted_setting(setting, site), folder)
    names: set[str] = set()
    for file in folder.rglob("construct.json"):
        above = {
            name: parent
            for name, parent in json.loads(file.read_text()).items()
            if isinstance(parent, str | None)
        }
        places = [place for place in (truth["module"], *truth.get("also", ())) if place]
        clean = truth.get("clean", ())
        names |= {
            name
            for name in above
            if not name.startswith("Module.")
            and _is_inside(name, above, places)
            and not _is_inside(name, above, clean)
        }
    shutil.rmtree(folder)
    return {"nodes": sorted(names)}


def _is_inside(name: str, above: dict[str, str | None], places: Sequence[str]) -> bool:
    parent, depth = above.get(name), 0
    while parent and depth < 100:
        if any(parent.startswith(f"Module.{place}.") for place in places):
            return True
        parent, depth = above.get(parent), depth + 1
    return False


def planted_setting(setting: Setting, site: Site) -> Setting:
    """Return how the target is run: as the fault has it, in the dtype of a setting."""
    return site.setting.but(dtype=setting.dtype)
