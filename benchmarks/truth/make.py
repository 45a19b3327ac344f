"""Make a sample of pairs of dumps with the real msprobe; needs the Python that has it.

    .venv-interop/bin/python benchmarks/truth/make.py --pairs 60 --seed 1 --out FOLDER

A pair is made by a process forked from this one, which has imported torch, transformers and msprobe once: it
builds the model, and forks one process each to measure the fault and to write the two dumps.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import torch
from architectures import Built, build
from catalogue import architectures
from dice import Dice, fold_of
from effects import effect_of
from faults import FAULTS
from modes import Wanted, alone, dump, run
from plan import Job, jobs, of_folds
from planting import NotHereError, Site, Truth, first_float, observed
from setting import ROUNDOFF, Setting
from torch import nn
from variations import VARIATIONS, Variation

SECONDS: Final = 60
ROUNDINGS: Final = 8
"""A fault whose effect is fewer unit roundoffs is below the noise."""
MOST_BYTES: Final = 10_000_000
BIG: Final = 1e9

Answer = dict[str, Any]


def forked(do: Callable[[], Answer], log: Path, seconds: int = SECONDS) -> Answer:
    """Do something in a process of its own, and return what it answers; {"failed": …} if it does not."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(do, writing, log, seconds)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if text:
        answer: Answer = json.loads(text)
        return answer
    ended = os.waitstatus_to_exitcode(status)
    return {"failed": "too slow" if ended == -signal.SIGALRM else f"ended by {ended}"}


def _answer(do: Callable[[], Answer], writing: int, log: Path, seconds: int) -> None:
    signal.alarm(seconds)
    try:
        with log.open("a") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            try:
                answer = do()
            except NotHereError:
                answer = {"failed": "no place for it"}
            except Exception as error:  # noqa: BLE001 (whatever it is, it is counted)
                traceback.print_exc()
                answer = {"failed": f"{type(error).__name__}: {error}"[:300]}
        with os.fdopen(writing, "w") as pipe:
            pipe.write(json.dumps(answer))
    finally:
        os._exit(0)


def make(job: Job, folder: Path, log: Path) -> Answer:
    """Make a pair; return what became of it."""
    architecture = architectures()[job.arch]
    built = build(architecture, job.seed)
    if job.healthy:
        variation = VARIATIONS[job.kind]
        return _healthy(job, built, variation, folder, log)
    return _faulty(job, built, folder, log)


def _healthy(job: Job, built: Built, variation: Variation, folder: Path, log: Path) -> Answer:
    checked = forked(lambda: _nearness(built, job.mode, variation, log), log)
    if "failed" in checked:
        return checked
    if not checked["apart"] <= variation.near:
        return {"failed": "not healthy", **checked}
    truth = {"kind": job.kind, "healthy": True}
    settings = (variation.golden, variation.target)
    return _write(job, built, settings, {"truth": truth, **checked}, folder, log)


def _nearness(built: Built, mode: str, variation: Variation, log: Path) -> Answer:
    both = [
        forked(lambda setting=setting: _outputs(built, mode, setting), log)
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


def _outputs(built: Built, mode: str, setting: Setting) -> Answer:
    outputs = torch.cat([one.flatten() for one in run(built, mode, setting, alone)])
    if not torch.isfinite(outputs).all():
        return {"failed": "not finite"}
    return {"values": outputs.tolist()}


def _plant(job: Job, built: Built) -> tuple[Site, Truth]:
    site = observed(built, job.mode, Dice("place", job.name), Setting(), lambda: built.model(**built.batch))
    site.task, site.level = job.task, job.level
    return site, FAULTS[job.kind].plant(site)


def _faulty(job: Job, built: Built, folder: Path, log: Path) -> Answer:
    measured = forked(lambda: _effect(job, built), log)
    if "failed" in measured:
        return measured
    truth: dict[str, Any] = measured["truth"]
    limit = ROUNDINGS * ROUNDOFF[job.dtype]
    if measured["effect"] <= limit:
        return {"failed": "below the noise", **measured}
    if job.task == "statistics" and measured["in statistics"] <= limit:
        return {"failed": "below the noise of statistics", **measured}
    settings = (Setting(), Setting(dtype=job.dtype))
    if job.level == "L1":
        nodes = forked(lambda: _operators(job, built, settings[1], truth, folder / "names"), log)
        if "failed" in nodes:
            return nodes
        truth["nodes"] = nodes["nodes"]
    return _write(job, built, settings, measured, folder, log)


def _effect(job: Job, built: Built) -> Answer:
    """Measure how far the fault moves what its module gives, in fp32, and its statistics."""
    dry = forked(lambda: {"truth": _plant(job, built)[1].written()}, Path(os.devnull))
    if "failed" in dry:
        return dry
    truth = dry["truth"]
    clean = _seen(built, job.mode, Setting(), truth)
    _restore(built, job)
    site, _ = _plant(job, built)
    planted = _seen(built, job.mode, site.setting, truth)
    if truth.get("optimizer"):
        return _optimizer_effect(truth, clean[""], planted[""])
    if truth.get("input"):
        apart, told = max(
            effect_of([one], [other]) for one, other in zip(clean[""], planted[""], strict=True)
        )
        return {"truth": truth, "effect": apart, "in statistics": told if job.kind == "wrong_ids" else 0.0}
    if job.kind == "frozen":
        return {"truth": truth, "effect": BIG, "in statistics": BIG}
    apart, told = effect_of(clean.pop(""), planted.pop(""))
    limit = ROUNDINGS * ROUNDOFF["fp32"]
    same = [name for name, given in clean.items() if effect_of(given, planted.get(name, []))[0] <= limit]
    if same:
        truth["clean"] = same
    return {"truth": truth, "effect": min(apart, BIG), "in statistics": min(told, BIG)}


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


def _seen(built: Built, mode: str, setting: Setting, truth: dict[str, Any]) -> dict[str, list[Any]]:
    """Run the model; return what the module at fault gave, as "", and each inside it.

    Or its gradients, or the losses, or the weights after each step, as the fault has it.
    """
    seen: dict[str, list[Any]] = {"": []}
    model, name, watch = built.model, truth["module"], None
    if truth.get("optimizer"):
        watch = lambda *at: seen[""].append([one.detach().clone() for one in at[1].parameters()])  # noqa: E731
    elif truth.get("ops") and not name:
        watch = lambda *at: seen[""].append(at[2].detach().clone())  # noqa: E731
    elif truth.get("backward"):
        model.get_submodule(name).register_full_backward_hook(
            lambda _, given, __: seen[""].append(given[0].clone() if given[0] is not None else torch.zeros(1))
        )
    else:
        _listen(model.get_submodule(name) if name else model, name or "", seen)
    run(built, mode, setting, alone, watch)
    return seen


def _listen(module: nn.Module, place: str, seen: dict[str, list[Any]]) -> None:
    for inner, one in module.named_modules():
        within = f"{place}.{inner}" if inner and place else ""
        if inner and not within:
            continue
        seen[within] = []
        one.register_forward_hook(lambda _, __, result, within=within: seen[within].append(_kept(result)))


def _kept(result: Any) -> Any:  # noqa: ANN401
    first = first_float(result)
    return None if first is None else first.detach().clone()


def _operators(job: Job, built: Built, setting: Setting, truth: dict[str, Any], folder: Path) -> Answer:
    """Return the operators that run in the module at fault: an L1 dump names no modules."""
    site, _ = _plant(job, built)
    dump(built, Wanted("statistics", "mix", job.mode), _planted(setting, site), folder)
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


def _planted(setting: Setting, site: Site) -> Setting:
    return site.setting.but(dtype=setting.dtype)


def _write(
    job: Job,
    built: Built,
    settings: tuple[Setting, Setting],
    more: Answer,
    folder: Path,
    log: Path,
) -> Answer:
    wanted = Wanted(job.task, job.level, job.mode)

    def golden() -> Answer:
        torch.manual_seed(job.seed)
        dump(built, wanted, settings[0], folder / "golden")
        return {}

    def target() -> Answer:
        torch.manual_seed(job.seed)
        setting = settings[1]
        if not job.healthy:
            setting = _planted(setting, _plant(job, built)[0])
        dump(built, wanted, setting, folder / "target")
        return {}

    for side in (golden, target):
        answer = forked(side, log)
        if "failed" in answer:
            return answer
    for side_name in ("golden", "target"):
        if not list((folder / side_name).rglob("dump.json")):
            return {"failed": "msprobe wrote no dump"}
    size = max(
        sum(file.stat().st_size for file in (folder / side).rglob("*") if file.is_file())
        for side in ("golden", "target")
    )
    if size > MOST_BYTES:
        return {"failed": "a dump is too large"}
    truth = {"kind": job.kind, "healthy": job.healthy} | more.pop("truth")
    kind = architectures()[job.arch].kind
    written = {**job.written(), "class": kind, "fold": fold_of(job.arch), "truth": truth, **more}
    (folder / "truth.json").write_text(json.dumps(written, indent=1), encoding="utf-8")
    return {"made": True}


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--healthy", type=int, default=45, help="how many of a hundred pairs are healthy")
    parser.add_argument("--only-folds", type=int, nargs="*", default=[])
    parser.add_argument("--only", nargs="*", default=[], metavar="ARCHITECTURE")
    parser.add_argument("--without", nargs="*", default=[], metavar="ARCHITECTURE")
    parser.add_argument("--kinds", nargs="*", default=[])
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many")
    parser.add_argument("--list", action="store_true", help="only build each architecture, and say which do")
    return parser.parse_args()


def import_modules(name: str) -> None:
    """Import what an architecture is made of once, for all processes that are forked from this one."""
    import transformers

    maker = architectures()[name].maker
    if maker != "custom":
        with suppress(Exception):
            config = transformers.AutoConfig.for_model(name)
            getattr(transformers, maker)._model_mapping[type(config)]  # noqa: SLF001


def builds(names: list[str], log: Path) -> dict[str, str]:
    """Build and run each architecture; return why some do not."""
    known, failed = architectures(), {}
    for name in names:

        def tried(name: str = name) -> Answer:
            built = build(known[name], 3)
            return _outputs(built, "fwd", Setting())

        import_modules(name)
        answer = forked(tried, log, 30)
        if "failed" in answer:
            failed[name] = answer["failed"].replace("\n", " ")
    return failed


def main() -> None:
    """Make the sample that the command line asks for."""
    options = parse_arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    log = options.out / "log.txt"
    _import_all()
    named = [name for name in (options.only or of_folds(options.only_folds)) if name not in options.without]
    known = options.out / "not_built.json"
    failed = json.loads(known.read_text("utf-8")) if known.is_file() else builds(named, log)
    named = [name for name in named if name not in failed]
    print(f"{len(named)} architectures build and run, {len(failed)} do not", flush=True)
    known.write_text(json.dumps(failed, indent=1), encoding="utf-8")
    print(*(f"     {name}: {why[:100]}" for name, why in failed.items()), sep="\n")
    if options.list:
        return
    _make_all(options, named, log)


def _make_all(options: argparse.Namespace, named: list[str], log: Path) -> None:
    counted: dict[str, int] = {}
    began, made = time.monotonic(), 0
    with (options.out / "made.jsonl").open("a") as notes:
        for job in jobs(options.seed, named, options.kinds, options.healthy, 1000 * options.seed):
            if made >= options.pairs or time.monotonic() - began > 60 * options.minutes:
                break
            folder = options.out / job.name
            if folder.exists():
                made += 1
                continue
            start = time.monotonic()
            folder.mkdir()
            import_modules(job.arch)
            answer = forked(lambda: make(job, folder, log), log, 4 * SECONDS)  # noqa: B023
            seconds = round(time.monotonic() - start, 1)
            if "failed" in answer:
                shutil.rmtree(folder)
            else:
                made += 1
            why = str(answer.get("failed", "made"))
            counted[why[:60]] = counted.get(why[:60], 0) + 1
            print(json.dumps({**job.written(), **answer, "seconds": seconds}), file=notes, flush=True)
            print(f"{made:4} {job.name}: {why} ({seconds} s)", flush=True)
    print(
        *(f"{number:5} {why}" for why, number in sorted(counted.items(), key=lambda one: -one[1])), sep="\n"
    )


def _import_all() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    for name in ("msprobe.pytorch", "transformers"):
        import_module(name)
    import transformers

    transformers.logging.set_verbosity_error()
    sys.setrecursionlimit(5000)


if __name__ == "__main__":
    main()
