"""Measure what is matched and said of two implementations of one model.

    python benchmarks/cross/measure.py FOLDER [--only NAME] [--wrong] [--said]

FOLDER has a folder for each pair, with golden/ and target/, and EXPECTED.json with their truths:
`healthy`, and `truth.modules`, any of which is the right one. Prints a line for each pair and totals:

finding     right, wrong, missed (no finding in a fault), clean, false (a finding in a healthy pair), none
            (not judged: exit 2)
compared    golden modules of which a tensor was compared, of all that have tensors
matched     modules that are matched as `roles.py` says, of those that could be
wrong       modules that are matched otherwise than it says
"""

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from roles import Role, role_of

from firstdrift import compare
from firstdrift.comparison.exit_status import exit_status
from firstdrift.comparison.report import Options
from firstdrift.dumps.detect import open_dump
from firstdrift.errors import FirstdriftError
from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import SlicePlan, TensorPair
from firstdrift.matching.slices import pair_slices
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Slice
from firstdrift.parallel.slices import read_slice
from firstdrift.wording.text import text_of

_NUMBER: Final = re.compile(r"(?:layers|h|blocks|block)\.(\d+)(?:\.|$)")
_UNSURE: Final = frozenset({"activation", "whole"})
"""What is matched rightly or not at all: whether it does the same, the table does not know."""

Key = tuple[Role, Direction, int]


class Matched(NamedTuple):
    """What was matched of the slices of a pair of dumps, in modules."""

    right: int = 0
    possible: int = 0
    wrong: tuple[str, ...] = ()
    compared: int = 0
    golden: int = 0
    seconds: float = 0.0
    missed: tuple[str, ...] = ()

    def plus(self, other: "Matched") -> "Matched":
        """Add up two slices."""
        return Matched(*(first + second for first, second in zip(self, other, strict=True)))


def roles(dumped: Slice) -> dict[str, Key]:
    """Return what each module of a slice is, with pass and call within its place."""
    modules = [node for node in dumped.nodes if node.kind is not NodeKind.API]
    paths = {node.name: node.path for node in modules}
    names = {node.path.rpartition(".")[2] for node in modules}
    found: dict[str, Key] = {}
    calls: Counter[tuple[Role, Direction]] = Counter()
    norm_inside = {node.path for node in modules if _has_norm_inside(node)}
    for node in modules:
        if node.tensors and all(record.role.value == "gradient" for record in node.tensors):
            continue
        role = role_of(
            node.path,
            layer=_layer_around(node, paths),
            has_four_norms="post_feedforward_layernorm" in names,
            gated=_is_gated(modules),
        )
        if role is not None and not _does_nothing(node):
            norm = {"norm1" if "q" in role.parts else "norm2"} if node.path in norm_inside else set()
            role = Role(role.layer, role.parts | norm)
            found[node.name] = (role, node.direction, calls[role, node.direction])
            calls[role, node.direction] += 1
    return found


def _does_nothing(node: Node) -> bool:
    """Tell whether what stands in the place of a norm is none."""
    return node.type_name == "IdentityOp" and "norm" in node.path


def _has_norm_inside(node: Node) -> bool:
    """Tell whether a linear module has the norm before it inside."""
    return any(record.key == "layer_norm_weight" for record in node.tensors)


def _is_gated(modules: Iterable[Node]) -> bool:
    """Tell whether the first of two fused layers gives twice what the second takes."""
    shapes: dict[str, int] = {}
    for node in modules:
        last = node.path.rpartition(".")[2]
        for record in node.tensors:
            if (
                record.role.value == ("output" if last in ("linear_fc1", "gate_up_proj") else "input")
                and record.shape
            ):
                shapes.setdefault(last, record.shape[-1])
    first = shapes.get("linear_fc1", shapes.get("gate_up_proj", 0))
    return first == 2 * shapes.get("linear_fc2", shapes.get("down_proj", -1))


def _layer_around(node: Node, paths: dict[str, str]) -> int | None:
    around = _NUMBER.search(paths.get(node.parent or "", ""))
    return int(around[1]) if around else None


def held_against_truth(golden: Slice, target: Slice, plan: SlicePlan, seconds: float) -> Matched:
    """Count the matches of two slices that are right, wrong, and missing."""
    own, other = roles(golden), roles(target)
    partners: dict[str, set[str]] = {}
    for match in plan.matches:
        for name in match.golden:
            if not match.doubtful:
                partners.setdefault(name, set()).update(match.target)
    there = {}
    for name, (role, *rest) in other.items():
        for part in role.parts:
            there.setdefault((role.layer, part, *rest), name)
    right, possible, wrong, missed = 0, 0, [], []
    for name, (role, *rest) in own.items():
        expected = {there[key] for part in role.parts if (key := (role.layer, part, *rest)) in there}
        found = {one for one in partners.get(name, set()) if one in other}
        is_sure = not (role.parts & _UNSURE)
        if found and expected and not found & expected:
            wrong.append(f"{name} ~ {min(found)}")
        elif found and not expected and is_sure:
            wrong.append(f"{name} ~ {min(found)} (no such)")
        if expected and is_sure:
            possible += 1
            right += bool(found & expected)
            if not found & expected:
                missed.append(name)
    compared = {pair.golden_node for pair in plan.pairs if pair.incomparable is None}
    compared |= {
        node
        for pair in plan.pairs
        if pair.incomparable is None and pair.golden_parts
        for node in _parts(plan, pair)
    }
    modules = {node.name for node in golden.nodes if node.tensors}
    return Matched(
        right, possible, tuple(wrong), len(compared & modules), len(modules), seconds, tuple(missed)
    )


def _parts(plan: SlicePlan, pair: TensorPair) -> tuple[str, ...]:
    return pair.part_nodes or plan.matches[pair.match].golden


def matched(folder: Path) -> Matched:
    """Match all slices of a pair of dumps, and hold that against the truth."""
    golden, target = open_dump(folder / "golden"), open_dump(folder / "target")
    options = Options()
    total = Matched()
    for first, second in pair_slices(golden, target, options.matching).pairs:
        slices = read_slice(golden, first), read_slice(target, second)
        start = time.perf_counter()
        plan = match_slices(*slices, options.matching)
        total = total.plus(held_against_truth(*slices, plan, time.perf_counter() - start))
    return total


def said(folder: Path, truth: dict[str, Any]) -> tuple[str, str]:
    """Compare a pair of dumps; return how good the finding is, and what was said."""
    try:
        report = compare(folder / "golden", folder / "target")
    except FirstdriftError as error:
        return "none", str(error)[:200]
    found = report.findings
    node, status, words = found.first_bad_node, exit_status(report), text_of(found.summary)
    if truth["healthy"]:
        return ("none" if status == 2 else "clean" if status == 0 else "false"), words
    if node is None:
        return ("none" if status == 2 else "missed" if status == 0 else "no node"), words
    modules = set(truth["truth"]["modules"])
    is_right = any(named and _paths(named) & modules for named in (node.golden, node.target, node.module))
    return ("right" if is_right else "wrong"), words


def _paths(name: str) -> set[str]:
    """Return what a node may be called without the marks of the dump around its path."""
    inner = name.removeprefix("Module.")
    parts = inner.split(".")
    return {inner, *(".".join(parts[:end]) for end in range(len(parts) - 4, len(parts)))}


def pairs_in(folder: Path, only: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the pairs of a folder, with their truths."""
    expected = folder / "EXPECTED.json"
    told = json.loads(expected.read_text("utf-8"))
    for pair in sorted(folder.iterdir()):
        if (pair / "golden").is_dir() and only in pair.name and pair.name in told:
            yield pair, told[pair.name]


def main() -> int:
    """Measure a folder of pairs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="pairs with this in their names")
    parser.add_argument("--wrong", action="store_true", help="name the wrong and the missing matches")
    parser.add_argument("--said", action="store_true", help="show what is said of each pair")
    parser.add_argument("--match-only", action="store_true", help="do not judge")
    settings = parser.parse_args()
    findings: Counter[str] = Counter()
    total = Matched()
    for folder, truth in pairs_in(settings.folder, settings.only):
        finding, words = ("-", "") if settings.match_only else said(folder, truth)
        one = matched(folder)
        total = total.plus(one)
        findings[f"{'healthy' if truth['healthy'] else 'fault'} {finding}"] += 1
        print(f"{folder.name:32} {finding:8} {_row(one)}", flush=True)
        if settings.said:
            print("    ", words[:240])
        for name in one.wrong if settings.wrong else ():
            print("     wrong ", name)
        for name in one.missed if settings.wrong else ():
            print("     missed", name)
    print(f"{'all':32} {'':8} {_row(total)}")
    print(", ".join(f"{what} {count}" for what, count in sorted(findings.items())))
    return 0


def _row(one: Matched) -> str:
    shares = f"compared {one.compared:4}/{one.golden:4}  matched {one.right:4}/{one.possible:4}"
    return f"{shares}  wrong {len(one.wrong):3}  {one.seconds:5.2f} s"


if __name__ == "__main__":
    sys.exit(main())
