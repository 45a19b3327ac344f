"""Ask msprobe's own compare about the same pairs; needs the Python that has it.

    .venv-interop/bin/python benchmarks/truth/peer.py FOLDER [--pairs 40]

Taken as its answer: the first row that `msprobe compare` calls an error, and the first node that its
`-da` (--diff_analyze) names. Writes peer.jsonl, and prints how often each is right.
"""

import argparse
import csv
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from make import forked
from score import pairs_of
from scoring import Answer, Named, score, share

Asked = Callable[[Path, Path], str | None]


def compared(target: Path, golden: Path, output: Path, *options: str) -> None:
    """Run msprobe compare as its command does."""
    from msprobe.msprobe import main

    sys.argv = ["msprobe", "compare", "-tp", str(target), "-gp", str(golden), "-o", str(output), *options]
    main()


def first_error(output: Path) -> str | None:
    """Return the first row that is an error."""
    for file in sorted(output.glob("*.csv")):
        with file.open(newline="", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                if row.get("Result", row.get("Accuracy Reached or Not", "")).lower() in {"error", "no"}:
                    return row["NPU Name"]
    return None


def first_analysed(output: Path) -> str | None:
    """Return the first node that the analysis names."""
    for file in sorted(output.rglob("*analy*.json")):
        found = next(_names(json.loads(file.read_text("utf-8"))), None)
        if found:
            return found
    return None


def _names(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        yield from (str(value[key]) for key in ("op_name", "api_name", "name", "node") if value.get(key))
        for inner in value.values():
            yield from _names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner)


def answer_of(pair: Path, ask: str, log: Path) -> Answer:
    """Return what the peer says of a pair: of the first step in which it says anything."""
    for number, step in enumerate(sorted((pair / "target").glob("step*"))):
        output = pair / "peer"
        output.mkdir(exist_ok=True)
        golden = pair / "golden" / step.name
        options = ("-da",) if ask == "-da" else ()
        forked(lambda: compared(step, golden, output, *options) or {}, log, 60)  # noqa: B023
        named = first_analysed(output) if ask == "-da" else first_error(output)
        shutil.rmtree(output)
        if named:
            return Answer(node=_named(named, step, number), inputs=1, summary=named)
    return Answer()


def _named(name: str, step: Path, number: int) -> Named:
    """Return the node that a name of msprobe means, with the module that it ran in."""
    construct = next(step.rglob("construct.json"), None)
    above = json.loads(construct.read_text("utf-8")) if construct else {}
    node = name
    for cut in (".input", ".output", ".parameters", ".kwargs"):
        node = node.partition(cut)[0]
    place = node
    while place and not place.startswith("Module."):
        parent = above.get(place)
        place = parent if isinstance(parent, str) else ""
    module = ".".join(place.split(".")[1:-3]) if place else None
    return Named(node, node, module, None, number)


def main() -> None:
    """Ask about the pairs of a folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, default=40)
    options = parser.parse_args()
    log = Path(os.devnull)
    results = []
    with (options.folder / "peer.jsonl").open("w", encoding="utf-8") as lines:
        for pair in list(pairs_of(options.folder))[:: max(1, _count(options.folder) // options.pairs)]:
            for ask in ("compare", "-da"):
                answer = answer_of(Path(pair["folder"]), ask, log)
                right = score(pair["truth"], answer).found
                results.append((ask, pair["truth"]["healthy"], right))
                line = {"name": pair["name"], "asked": ask, "right": right, "said": answer.summary}
                print(json.dumps(line), file=lines, flush=True)
    for ask in ("compare", "-da"):
        found = [right for one, healthy, right in results if one == ask and not healthy]
        quiet = [right for one, healthy, right in results if one == ask and healthy]
        print(f"msprobe {ask}: {share(sum(found), len(found))} found, ", end="")
        print(f"{share(len(quiet) - sum(quiet), len(quiet))} false findings")


def _count(folder: Path) -> int:
    return sum(1 for _ in pairs_of(folder))


if __name__ == "__main__":
    main()
