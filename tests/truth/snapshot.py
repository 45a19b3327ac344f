"""Write down what firstdrift says of every pair of dumps, for `snapshot.jsonl`.

    python tests/truth/snapshot.py --write                       the dumps of the tests and examples
    python tests/truth/snapshot.py --write --fixtures FOLDER     and those of a folder of fixtures
    python tests/truth/snapshot.py --fixtures FOLDER             show what has changed
    python tests/truth/snapshot.py --only msit/llama12 --rows    name every row that has changed as well

A pair is one line: the exit status, the findings, what the first sentence says of the cause (by ids of
messages), and for each slice how many pairs passed, what class each row is (in the order of the tree, "3k 1s"
for three clean rows and a source), and a digest of all matches. Words and numbers are left out: they may be
said otherwise.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

Said = dict[str, Any]
ONLY_SLICE = "the only slice"

HERE = Path(__file__).parent
SNAPSHOT = HERE / "snapshot.jsonl"
DUMPS, EXAMPLES = HERE.parent / "dumps", HERE.parent.parent / "examples"
_GOLDEN = ("golden", "bench", "before", "single")
_OF_CAUSES = ("cause.", "shown.", "hint.", "reason.", "systematic.", "finding.optimizer")
_LETTERS = {
    "source": "s",
    "weights differ": "w",
    "non-finite": "n",
    "structure differs": "d",
    "amplified": "a",
    "propagated": "p",
    "healed": "h",
    "unmatched": "u",
    "clean": "k",
}


def unpack(archives: Path, to: Path) -> None:
    """Unpack all archives below a folder, each into a folder of its own name."""
    for archive in sorted(archives.rglob("*.tar.xz")):
        folder = to / archive.parent.relative_to(archives)
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / archive.name.removesuffix(".tar.xz")).exists():
            continue
        inside = folder if _has_own_folder(archive) else folder / archive.name.removesuffix(".tar.xz")
        inside.mkdir(exist_ok=True)
        subprocess.run(["tar", "-x", "--no-same-owner", "-f", archive, "-C", inside], check=True)


def _has_own_folder(archive: Path) -> bool:
    """Tell whether everything in an archive lies in a folder of its name."""
    listed = subprocess.run(["tar", "-t", "-f", archive], check=True, capture_output=True, text=True).stdout
    tops = {Path(line).parts[0] for line in listed.splitlines() if Path(line).parts}
    return tops == {archive.name.removesuffix(".tar.xz")}


def find_pairs(root: Path, *, of_one_family: bool) -> Iterator[tuple[Path, Path]]:
    """Yield each pair of dumps that lie in the same folder: a golden one, and another.

    A family is what begins alike: "atb12_golden" and "atb12_bad"; names of one word are a family too.
    """
    for _, found in groupby(sorted(_dumps_below(root), key=_folder), key=_folder):
        dumps = list(found)
        golden = [dump for dump in dumps if any(word in dump.name for word in _GOLDEN)] or dumps[:1]
        yield from (
            (one, other)
            for one in golden
            for other in dumps
            if other != one and (not of_one_family or _family(one) == _family(other))
        )


def _folder(dump: Path) -> Path:
    return dump.parent


def _family(dump: Path) -> str:
    return dump.name.partition("_")[0] if "_" in dump.name else ""


def _dumps_below(folder: Path, depth: int = 4) -> Iterator[Path]:
    from firstdrift.dumps.detect import open_dump
    from firstdrift.errors import DumpError

    try:
        open_dump(folder)
    except DumpError:
        if depth and folder.is_dir():
            for inside in sorted(folder.iterdir()):
                yield from _dumps_below(inside, depth - 1)
        return
    yield folder


def say_pair(pair: tuple[Path, Path]) -> Said:
    """Compare two dumps, and write down what is said of them."""
    from firstdrift import compare
    from firstdrift.errors import FirstdriftError

    try:
        report = compare(*pair)
    except FirstdriftError as error:
        return {"refused": type(error).__name__}
    return dict(json.loads(json.dumps(described(report))))


def described(report: Any) -> Said:  # noqa: ANN401 (also that of an earlier version)
    """Write down what a report says."""
    from firstdrift.comparison.exit_status import exit_status
    from firstdrift.wording.phrases import within

    found = report.findings
    said: Said = {
        "exit": exit_status(report),
        "token": _place(found.first_bad_token),
        "node": _place(found.first_bad_node),
        "why": [part.id for part in within(found.summary) if part.id.startswith(_OF_CAUSES)],
        "suspects": [_place(one) for one in found.suspects],
        "input": [_coordinates(one.coordinates) for one in found.input_differs],
        "overflow": [[one.node, one.level] for one in found.overflow],
        "unlike": bool(found.unlike),
        "unreadable": report.unreadable,
        "problems": [len(report.golden.problems), len(report.target.problems)],
        "left": [
            [_coordinates(at) for at in side]
            for side in (report.pairing.unmatched_golden, report.pairing.unmatched_target)
        ],
        "slices": {_coordinates(one.judgement.coordinates): _slice(one) for one in report.slices},
    }
    return {name: value for name, value in said.items() if value not in (None, [], {}, False, [[], []])}


def _coordinates(at: Any) -> str:  # noqa: ANN401
    rank = "+".join(map(str, at.merged)) if at.merged else at.rank
    parts = {"step": at.step, "rank": rank, "token": at.token, "micro step": at.micro_step}
    return ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None) or ONLY_SLICE


def _place(finding: Any) -> list[Any] | None:  # noqa: ANN401
    if finding is None:
        return None
    place = [
        _coordinates(finding.coordinates),
        finding.golden,
        finding.target,
        finding.module,
        finding.tensor,
    ]
    return [*place, finding.node_class, finding.verdict, finding.on_rank, finding.operator]


def _slice(result: Any) -> Said:  # noqa: ANN401
    rows = zip(result.rows, result.judgement.rows, strict=True)
    letters = [_LETTERS[str(judged.node_class)] + _severity(judged.verdict) for _, judged in rows]
    plan = result.plan
    nodes = [(match.golden, match.target, match.origin, match.doubtful) for match in plan.matches]
    pairs = [
        (pair.golden_node, pair.target_node, pair.golden.label, pair.target.label, pair.joining)
        for pair in plan.pairs
    ]
    left = (plan.unmatched_golden, plan.unmatched_target)
    return {
        "counts": list(result.judgement.counts.values()),
        "classes": " ".join(f"{len(list(same))}{letter}" for letter, same in groupby(letters)),
        "matches": _digest(nodes, left),
        "pairs": _digest(pairs, [judged.verdict for judged in result.judgement.pairs]),
    }


def _severity(verdict: str) -> str:
    return {"pass": "", "incomparable": "?", "warning": "'", "error": '"'}[verdict]


def _digest(*values: object) -> str:
    return hashlib.sha256(json.dumps(values, default=str).encode()).hexdigest()[:12]


def rows_of(golden: Path, target: Path) -> list[str]:
    """List the rows of a comparison with what is said of each."""
    from firstdrift import compare

    return [
        f"{_coordinates(result.judgement.coordinates)} {'/'.join(row.golden)} | {'/'.join(row.target)}"
        f" [{row.direction}] {judged.node_class} {judged.verdict}"
        for result in compare(golden, target).slices
        for row, judged in zip(result.rows, result.judgement.rows, strict=True)
    ]


def all_pairs(folders: Mapping[str, Path]) -> dict[str, tuple[Path, Path]]:
    """Return the pairs of dumps below folders by name: "msit/atb12_golden | atb12_bad"."""
    return {
        f"{name}/{golden.relative_to(folder)} | {target.relative_to(golden.parent)}": (golden, target)
        for name, folder in folders.items()
        for golden, target in find_pairs(folder, of_one_family=name != "fixtures")
    }


def read_snapshot() -> dict[str, Said]:
    """Read what was written down."""
    lines = map(json.loads, SNAPSHOT.read_text().splitlines())
    return {line.pop("pair"): line for line in lines}


def differences(was: Mapping[str, Said], is_now: Mapping[str, Said]) -> list[str]:
    """Say what differs between two snapshots, a line for each difference."""
    return [
        f"{pair}: {path}\n    was {json.dumps(before)}\n    now {json.dumps(now)}"
        for pair in sorted({*was, *is_now})
        for path, before, now in _changed(was.get(pair), is_now.get(pair), "")
    ]


def _changed(before: object, now: object, path: str) -> Iterator[tuple[str, object, object]]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            yield from _changed(before.get(key), now.get(key), f"{path}.{key}")
    elif before != now:
        yield path, before, now


def pairs_of_tests(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Unpack the dumps of the tests into a folder; return their pairs, and those of the examples."""
    unpack(DUMPS, folder / "tests")
    shutil.copytree(EXAMPLES, folder / "examples", ignore=shutil.ignore_patterns("*.tar.xz"))
    unpack(EXAMPLES, folder / "examples")
    return all_pairs({"tests": folder / "tests", "examples": folder / "examples"})


def main() -> int:
    """Write the snapshot, or say what has changed since; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the snapshot anew")
    parser.add_argument("--fixtures", type=Path, help="a folder with archives of further dumps")
    parser.add_argument("--only", default="", help="pairs with this in their name")
    parser.add_argument("--rows", action="store_true", help="list the rows of these pairs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    asked = parser.parse_args()
    with TemporaryDirectory() as made:
        folder = Path(made)
        pairs = pairs_of_tests(folder)
        if asked.fixtures:
            unpack(asked.fixtures, folder / "fixtures")
            pairs |= all_pairs({"fixtures": folder / "fixtures"})
        pairs = {name: pair for name, pair in pairs.items() if asked.only in name}
        if asked.rows:
            for name, pair in pairs.items():
                print(name, *rows_of(*pair), sep="\n  ")
            return 0
        with ProcessPoolExecutor(asked.jobs) as pool:
            said = dict(zip(pairs, pool.map(say_pair, pairs.values()), strict=True))
    if asked.write:
        if asked.only or not asked.fixtures:
            others = read_snapshot().items()
            said |= {name: line for name, line in others if name not in said and _is_left(name, asked.only)}
        lines = (json.dumps({"pair": name, **said[name]}) for name in sorted(said))
        SNAPSHOT.write_text("".join(f"{line}\n" for line in lines))
        return 0
    known = {
        name: line
        for name, line in read_snapshot().items()
        if asked.only in name and (asked.fixtures or not name.startswith("fixtures/"))
    }
    found = differences(known, said)
    print(*found, f"{len(said)} pairs, {len(found)} differences", sep="\n")
    return 1 if found else 0


def _is_left(name: str, only: str) -> bool:
    """Tell whether a pair that was not looked at stays in the snapshot."""
    return only not in name or name.startswith("fixtures/")


if __name__ == "__main__":
    sys.exit(main())
