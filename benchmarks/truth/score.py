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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from catalogue import architectures
from dice import fold_of
from scoring import (
    Answer,
    Named,
    Result,
    certainty_table,
    first_token_table,
    rank_table,
    rotated_table,
    score,
    share,
    table,
    token_table,
)

if TYPE_CHECKING:
    from firstdrift import Report

Pair = dict[str, Any]
Done = TypeVar("Done")


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

    return answer_of(compare(Path(folder) / "golden", Path(folder) / "target"))


def answer_of(report: "Report") -> Answer:
    """Take from a report what is held against the truth."""
    from firstdrift.comparison.exit_status import exit_status
    from firstdrift.wording.text import text_of

    found = report.findings
    return Answer(
        node=_named(found.first_bad_node),
        token=_named(found.first_bad_token),
        inputs=len(found.input_differs),
        input_ranks=tuple(one.coordinates.rank for one in found.input_differs),
        suspects=len(found.suspects),
        status=exit_status(report),
        systematic=tuple(one.rule for one in found.systematic if one.is_fault),
        summary=text_of(found.summary),
    )


def _named(finding: Any) -> Named | None:  # noqa: ANN401
    if finding is None:
        return None
    cls = None if finding.node_class is None else str(finding.node_class)
    place = finding.coordinates
    rank = place.rank if finding.on_rank is None else finding.on_rank
    module = None if finding.module is None else finding.module.removeprefix("root").removeprefix(".")
    sure = None if finding.confidence is None else str(finding.confidence.certainty)
    return Named(
        finding.target, finding.golden, module, cls, place.step, finding.operator, place.token, rank, sure
    )


def scored(pair: Pair) -> dict[str, Any]:
    """Compare a pair and score the answer."""
    start = time.perf_counter()
    try:
        answer = answer_to(pair["folder"])
    except Exception as error:  # noqa: BLE001 (a crash is a wrong answer)
        answer = Answer(node=Named("crashed"), status=70, summary=f"{type(error).__name__}: {error}"[:300])
    result = score(pair["truth"], answer)
    node = answer.node
    told = ("name", "kind", "arch", "mode", "task", "level", "dtype", "class", "fold", "ranks", "truth")
    return {name: pair.get(name) for name in told} | {
        "healthy": pair["truth"]["healthy"],
        "found": result.found,
        "class right": result.cls,
        "token right": result.token,
        "rank right": result.rank,
        "exit": answer.status,
        "node": node
        and {
            "target": node.target,
            "module": node.module,
            "class": node.cls,
            "step": node.step,
            "token": node.token,
            "rank": node.rank,
            "certainty": node.certainty,
        },
        "token": answer.token and {"target": answer.token.target, "token": answer.token.token},
        "inputs": answer.inputs,
        "systematic": answer.systematic,
        "said": answer.summary,
        "seconds": round(time.perf_counter() - start, 2),
    }


def score_all(pairs: Sequence[Pair], jobs: int) -> list[dict[str, Any]]:
    """Score pairs, so many at a time."""
    return for_each(scored, pairs, jobs)


def for_each(do: Callable[[Pair], Done], pairs: Sequence[Pair], jobs: int) -> list[Done]:
    """Do something with each pair, so many at a time."""
    with ProcessPoolExecutor(jobs, get_context("fork"), initializer=_quiet) as pool:
        return list(pool.map(do, pairs))


def _quiet() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)


def summary(results: Sequence[Result], *, rotate: bool = False) -> str:
    """Write the tables, and what was said where it was wrong."""
    of_msit = [one for one in results if str(one["level"]).startswith("msit")]
    tables = [
        rotated_table(results) if rotate else "",
        first_token_table(of_msit),
        token_table(of_msit),
        rank_table([one for one in results if one.get("ranks")]),
        certainty_table(results),
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
        *(one for one in tables if one),
    ]
    lines.append(_listed("Wrong", wrong))
    lines.append(_listed("Place right, class not", other))
    beside = [one for one in results if one["found"] and not (one["token right"] and one["rank right"])]
    lines.append(_listed("Place right, token or rank not", beside))
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
    token = f" in token {truth['token']}, logits {truth.get('logits')}" if "token" in truth else ""
    rank = f" on rank {truth['ranks at fault']}" if "ranks at fault" in truth else ""
    return step + token + rank + (" backward" if truth.get("backward") else "")


@dataclass(frozen=True)
class Chosen:
    """Which pairs of a folder are scored, and what is written of them.

    Attributes:
        folds: folds of architectures; empty for all.
        looked_at: architectures that are left out.
        expected: a file with the truths of pairs that have none of their own.
        out: where results are written; beside the pairs if None.
        rotate: whether each fold is held against the others.
    """

    folds: Sequence[int] = ()
    looked_at: frozenset[str] = frozenset()
    expected: Path | None = None
    out: Path | None = None
    rotate: bool = False

    def has(self, pair: Pair) -> bool:
        """Tell whether a pair is scored."""
        return (not self.folds or pair["fold"] in self.folds) and pair["arch"] not in self.looked_at


def names_in(file: Path | None) -> frozenset[str]:
    """Read names of architectures, one in a line; "#" begins a comment.

    Raises:
        ValueError: a name is that of no architecture.
    """
    if file is None:
        return frozenset()
    lines = (line.partition("#")[0].strip() for line in file.read_text("utf-8").splitlines())
    names = frozenset(filter(None, lines))
    unknown = sorted(names - architectures().keys())
    if unknown:
        raise ValueError(f"{file} names architectures that are not known: {', '.join(unknown)}")
    return names


def score_folder(folder: Path, jobs: int, chosen: Chosen) -> str:
    """Score a sample; write what came of it, and return the tables."""
    written = chosen.out or folder
    written.mkdir(parents=True, exist_ok=True)
    pairs = list(pairs_of(folder, chosen.expected))
    kept = [pair for pair in pairs if chosen.has(pair)]
    results = score_all(kept, jobs)
    lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in results)
    (written / "results.jsonl").write_text(lines, encoding="utf-8")
    text = summary(results, rotate=chosen.rotate)
    if len(kept) < len(pairs):
        text = f"{len(pairs) - len(kept)} of {len(pairs)} pairs are left out.\n\n{text}"
    (written / "summary.txt").write_text(text + "\n", encoding="utf-8")
    return text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what chooses pairs to a command line."""
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only-folds", type=int, nargs="*", default=[])
    parser.add_argument("--looked-at", type=Path, metavar="FILE", help="architectures that are left out")
    parser.add_argument("--rotate", action="store_true", help="hold each fold against the others")


def main() -> int:
    """Score what the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    add_arguments(parser)
    parser.add_argument("--expected", type=Path, help="a file with the truths of pairs that have none")
    parser.add_argument("--out", type=Path, help="a folder for summary.txt and results.jsonl")
    options = parser.parse_args()
    chosen = Chosen(
        options.only_folds, names_in(options.looked_at), options.expected, options.out, options.rotate
    )
    print(score_folder(options.folder, options.jobs, chosen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
