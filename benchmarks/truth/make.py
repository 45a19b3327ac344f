"""Make a sample of pairs of dumps with the real msprobe; needs the Python that has it.

    .venv-interop/bin/python benchmarks/truth/make.py --pairs 60 --seed 1 --out FOLDER

A pair is made by a process forked from this one, which has imported torch, transformers and msprobe once: it
builds the model, and forks one process each to measure the fault and to write the two dumps.
"""

import argparse
import json
import os
import shutil
import sys
import time
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import torch
from architectures import Built, build
from catalogue import architectures
from dice import fold_of
from forking import SECONDS, Answer, forked
from measuring import ROUNDINGS, effect, operators, plant, planted_setting
from modes import Wanted, dump
from nearness import checked_healthy, outputs_of
from plan import Job, Shares, jobs, of_folds
from rank_pairs import make_of_ranks
from setting import ROUNDOFF, Setting
from variations import VARIATIONS, Variation

MOST_BYTES: Final = 10_000_000


def make(job: Job, folder: Path, log: Path) -> Answer:
    """Make a pair; return what became of it."""
    if job.ranks:
        told = make_of_ranks(job, folder, log)
        return told if "failed" in told else _kept(job, told, folder)
    architecture = architectures()[job.arch]
    built = build(architecture, job.seed)
    if job.healthy:
        variation = VARIATIONS[job.kind]
        return _healthy(job, built, variation, folder, log)
    return _faulty(job, built, folder, log)


def _healthy(job: Job, built: Built, variation: Variation, folder: Path, log: Path) -> Answer:
    checked = checked_healthy(built, job.mode, variation, log)
    if "failed" in checked:
        return checked
    truth = {"kind": job.kind, "healthy": True}
    settings = (variation.golden, variation.target)
    return _write(job, built, settings, {"truth": truth, **checked}, folder, log)


def _faulty(job: Job, built: Built, folder: Path, log: Path) -> Answer:
    measured = forked(lambda: effect(job, built), log)
    if "failed" in measured:
        return measured
    truth: dict[str, Any] = measured["truth"]
    limit = ROUNDINGS * ROUNDOFF[job.dtype]
    if measured["effect"] <= limit:
        return {"failed": "below the noise", **measured}
    if job.task == "statistics" and measured["in statistics"] <= limit:
        return {"failed": "below the noise of statistics", **measured}
    settings = (Setting(), Setting(dtype=job.dtype))
    if job.dtype != "fp32":  # of a run that is off without the fault, nobody knows where it begins first
        checked = checked_healthy(built, job.mode, VARIATIONS[f"h_{job.dtype}"], log)
        if "failed" in checked:
            return {"failed": f"{job.dtype} alone is {checked['failed']}"}
    if job.level == "L1":
        nodes = forked(lambda: operators(job, built, settings[1], truth, folder / "names"), log)
        if "failed" in nodes:
            return nodes
        truth["nodes"] = nodes["nodes"]
    return _write(job, built, settings, measured, folder, log)


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
            setting = planted_setting(setting, plant(job, built)[0])
            torch.manual_seed(job.seed)  # planting runs the model, and some draw numbers when they run
        dump(built, wanted, setting, folder / "target")
        return {}

    for side in (golden, target):
        answer = forked(side, log)
        if "failed" in answer:
            return answer
    return _kept(job, more, folder)


def _kept(job: Job, more: Answer, folder: Path) -> Answer:
    """Write the truth of a pair beside its dumps, unless they are too large."""
    for side_name in ("golden", "target"):
        if not any(list((folder / side_name).rglob(name)) for name in ("dump.json", "model_tree.json")):
            return {"failed": "no dump was written"}
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
    parser.add_argument("--lower", type=int, default=30, help="how many of a hundred faults are in 16 bits")
    parser.add_argument("--rounded", type=int, default=0, help="how many of a hundred have rounded weights")
    parser.add_argument("--msit", type=int, default=0, help="how many of a hundred pairs are like msit's")
    parser.add_argument("--ranks", type=int, default=0, help="how many of a hundred pairs are of two ranks")
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
            return outputs_of(built, "fwd", Setting())

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
        shares = Shares(options.healthy, options.lower, options.rounded, options.msit, options.ranks)
        for job in jobs(options.seed, named, options.kinds, shares, 1000 * options.seed):
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
