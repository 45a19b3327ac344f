"""Score the answers of firstdrift to a sample that lies there.

    .venv/bin/python benchmarks/truth/score.py FOLDER [--jobs 2] [--only-folds 0] [--out OTHER]

Each pair is a folder with golden/, target/ and truth.json; without truth.json, EXPECTED.json of the folder,
or that of `--expected`, has its truth. Prints tables in Markdown, writes summary.txt and results.jsonl beside
the pairs, or into the folder `--out`.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from catalogue import architectures
from dice import fold_of
from scoring import Answer, Named, Result, score, share, table

Pair = dict[str, Any]


def pairs_of(folder: Path, expected: Path | None = None) -> Iterator[Pair]:
    """Yield the pairs of a folder with their truths."""
    file = expected or folder / "EXPECTED.json"
    told = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    for pair in sorted(folder.iterdir()):
        if not (pair / "golden").is_dir() or not (pair / "target").is_dir():
            continue
        own = pair / "truth.json"
        known = json.loads(own.read_text("utf-8")) if own.is_file() else told.get(pair.name)
        if known is None:
            continue
        yield {
            **_from_name(pair.name),
            **known,
            "folder": str(pair),
            "name": pair.name,
            "fold": fold_of(known["arch"]),
        }


def _from_name(name: str) -> Pair:
    """Read what a name says: [n.]kind.architecture.mode.task.level[.dtype][.number]."""
    parts = name.removeprefix("n.").split(".")
    known = architectures().get(parts[1])
    dtype = next((one for one in parts[5:] if not one.isdigit()), "fp32")
    dtype = {"bflo16": "bf16", "floa16": "fp16"}.get(dtype, dtype)
    return {"mode": parts[2], "level": parts[4], "dtype": dtype, "class": known.kind if known else "unknown"}


def answer_to(folder: str) -> Answer:
    """Compare the two dumps of a pair."""
    from firstdrift import compare
    from firstdrift.comparison.exit_status import exit_status
    from firstdrift.wording.text import text_of

    report = compare(Path(folder) / "golden", Path(folder) / "target")
    found = report.findings
    return Answer(
        node=_named(found.first_bad_node),
        token=_named(found.first_bad_token),
        inputs=len(found.input_differs),
        suspects=len(found.suspects),
        status=exit_status(report),
        summary=text_of(found.summary),
    )


def _named(finding: Any) -> Named | None:  # noqa: ANN401
    if finding is None:
        return None
    cls = None if finding.node_class is None else str(finding.node_class)
    step = finding.coordinates.step
    return Named(finding.target, finding.golden, finding.module, cls, step, finding.operator)


def scored(pair: Pair) -> dict[str, Any]:
    """Compare a pair and score the answer."""
    start = time.perf_counter()
    try:
        answer = answer_to(pair["folder"])
    except Exception as error:  # noqa: BLE001 (a crash is a wrong answer)
        answer = Answer(node=Named("crashed"), status=70, summary=f"{type(error).__name__}: {error}"[:300])
    result = score(pair["truth"], answer)
    node = answer.node
    told = ("name", "kind", "arch", "mode", "task", "level", "dtype", "class", "fold", "truth")
    return {name: pair.get(name) for name in told} | {
        "healthy": pair["truth"]["healthy"],
        "found": result.found,
        "class right": result.cls,
        "exit": answer.status,
        "node": node and {"target": node.target, "module": node.module, "class": node.cls, "step": node.step},
        "inputs": answer.inputs,
        "said": answer.summary,
        "seconds": round(time.perf_counter() - start, 2),
    }


def score_all(pairs: Sequence[Pair], jobs: int) -> list[dict[str, Any]]:
    """Score pairs, so many at a time."""
    with ProcessPoolExecutor(jobs, get_context("fork"), initializer=_quiet) as pool:
        return list(pool.map(scored, pairs))


def _quiet() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)


def summary(results: Sequence[Result]) -> str:
    """Write the tables, and what was said where it was wrong."""
    tables = [
        table("task", results, lambda one: str(one["task"])),
        table("level", results, lambda one: str(one["level"])),
        table(
            "dtype of the target",
            [one for one in results if not one["healthy"]],
            lambda one: str(one["dtype"]),
        ),
        table("mode", results, lambda one: str(one["mode"])),
        table("class of model", results, lambda one: str(one["class"])),
        table("fold of architectures", results, lambda one: f"{one['fold']}"),
        table("kind", results, lambda one: str(one["kind"])),
    ]
    wrong = [one for one in results if not one["found"]]
    other = [one for one in results if one["found"] and not one["class right"]]
    lines = [
        f"{len(results)} pairs; {share(len(results) - len(wrong), len(results))} answered rightly",
        *tables,
    ]
    lines.append(_listed("Wrong", wrong))
    lines.append(_listed("Place right, class not", other))
    return "\n\n".join(lines)


def _listed(title: str, results: Sequence[Result]) -> str:
    rows = [f"{title}: {len(results)}"]
    for one in results:
        truth = one["truth"]
        right = (
            ""
            if truth["healthy"]
            else f" (truth: {truth.get('module')!r}{_at(truth)}, {'/'.join(truth.get('cls', ()))})"
        )
        node = one["node"] and f" [{one['node']['class']}]"
        rows.append(f"- {one['name']}{right}: exit {one['exit']}{node or ''}: {one['said']}")
    return "\n".join(rows)


def _at(truth: Result) -> str:
    step = "" if truth.get("step") is None else f" in step {truth['step']}"
    return step + (" backward" if truth.get("backward") else "")


def score_folder(
    folder: Path, jobs: int, folds: Sequence[int], expected: Path | None = None, out: Path | None = None
) -> str:
    """Score a sample; write what came of it beside the pairs, or into `out`, and return the tables."""
    written = out or folder
    written.mkdir(parents=True, exist_ok=True)
    pairs = [pair for pair in pairs_of(folder, expected) if not folds or pair["fold"] in folds]
    results = score_all(pairs, jobs)
    lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in results)
    (written / "results.jsonl").write_text(lines, encoding="utf-8")
    text = summary(results)
    (written / "summary.txt").write_text(text + "\n", encoding="utf-8")
    return text


def main() -> int:
    """Score what the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only-folds", type=int, nargs="*", default=[])
    parser.add_argument("--expected", type=Path, help="a file with the truths of pairs that have none")
    parser.add_argument("--out", type=Path, help="a folder for summary.txt and results.jsonl")
    options = parser.parse_args()
    print(score_folder(options.folder, options.jobs, options.only_folds, options.expected, options.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
