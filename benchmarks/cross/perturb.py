"""Measure how matching stands what it may meet: other names, missing modules, wrong values.

    python benchmarks/cross/perturb.py FOLDER [--only NAME] [--seeds 3] [--wrong]

Each pair of a folder, as `measure.py` takes it, is matched as it is, and again after its target was changed
in memory:

values      all recorded statistics of activations are others, as after a fault in the first layer
weight      the statistics of one weight are others
deleted     every tenth module of either side is gone
labels      all names of target modules are made up anew, the same for all layers
classes     the target tells no classes
all         labels, values and deleted

Matches are right, wrong or missing, as `roles.py` says of the modules as they were.
"""

import argparse
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from measure import Matched, held_against_truth
from msgspec.structs import replace

from firstdrift.comparison.report import Options
from firstdrift.dumps.detect import open_dump
from firstdrift.matching.match import match_slices
from firstdrift.matching.slices import pair_slices
from firstdrift.model.node import Node, NodeKind
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import Role, Statistics, TensorRecord
from firstdrift.parallel.slices import read_slice

Change = Callable[[Slice, random.Random], Slice]


def other_values(dumped: Slice, dice: random.Random) -> Slice:
    """Give all activations other statistics, the same wherever they were the same."""
    factors: dict[object, float] = {}

    def changed(record: TensorRecord) -> TensorRecord:
        told = record.statistics
        if told is None or record.role in (Role.PARAMETER, Role.GRADIENT) or told.norm is None:
            return replace(record, digest=None)
        factor = factors.setdefault((told.norm, told.maximum), dice.uniform(0.3, 3.0))
        numbers = (told.maximum, told.minimum, told.mean, told.norm)
        return replace(
            record, digest=None, statistics=Statistics(*(None if n is None else n * factor for n in numbers))
        )

    return _with_tensors(dumped, changed)


def other_weight(dumped: Slice, dice: random.Random) -> Slice:
    """Give one weight other statistics."""
    weights = [node.name for node in dumped.nodes if node.records(Role.PARAMETER)]
    chosen = dice.choice(weights) if weights else ""

    def changed(node: Node) -> Node:
        if node.name != chosen:
            return node
        return replace(node, tensors=tuple(_scaled(record) for record in node.tensors))

    return replace(dumped, nodes=tuple(map(changed, dumped.nodes)))


def _scaled(record: TensorRecord) -> TensorRecord:
    told = record.statistics
    if record.role is not Role.PARAMETER or told is None:
        return record
    numbers = (told.maximum, told.minimum, told.mean, told.norm)
    return replace(
        record, digest=None, statistics=Statistics(*(None if n is None else n * 1.5 for n in numbers))
    )


def _with_tensors(dumped: Slice, changed: Callable[[TensorRecord], TensorRecord]) -> Slice:
    nodes = (replace(node, tensors=tuple(map(changed, node.tensors))) for node in dumped.nodes)
    return replace(dumped, nodes=tuple(nodes))


def deleted(dumped: Slice, dice: random.Random) -> Slice:
    """Leave out every tenth module; what hung below it hangs at the module around."""
    gone = {
        node.name: node.parent
        for node in dumped.nodes
        if node.kind is not NodeKind.API and dice.random() < 0.1
    }

    def parent(name: str | None) -> str | None:
        while name in gone:
            name = gone[name]
        return name

    kept = [node for node in dumped.nodes if node.name not in gone]
    nodes = (replace(node, order=at, parent=parent(node.parent)) for at, node in enumerate(kept))
    return replace(dumped, nodes=tuple(nodes))


def other_labels(dumped: Slice, dice: random.Random) -> Slice:
    """Call all modules otherwise: each word of a path that is no number has a made-up one in its place."""
    made: dict[str, str] = {}

    def called(path: str) -> str:
        words = path.split(".")
        return ".".join(
            word if word.isdigit() else made.setdefault(word, "".join(dice.choices("bcdfgjmptvxz", k=5)))
            for word in words
        )

    nodes = (
        node if node.kind is NodeKind.API else replace(node, path=called(node.path)) for node in dumped.nodes
    )
    return replace(dumped, nodes=tuple(nodes))


def no_classes(dumped: Slice, dice: random.Random) -> Slice:
    """Tell no classes."""
    del dice
    nodes = (node if node.kind is NodeKind.API else replace(node, type_name="") for node in dumped.nodes)
    return replace(dumped, nodes=tuple(nodes))


def same(dumped: Slice, dice: random.Random) -> Slice:
    """Change nothing."""
    del dice
    return dumped


_WAYS: Final[dict[str, tuple[tuple[Change, ...], tuple[Change, ...]]]] = {
    "as it is": ((same,), (same,)),
    "values": ((same,), (other_values,)),
    "weight": ((same,), (other_weight,)),
    "deleted": ((deleted,), (deleted,)),
    "labels": ((same,), (other_labels,)),
    "classes": ((same,), (no_classes,)),
    "all": ((deleted,), (other_values, other_labels, deleted)),
}
"""Changes of the golden and of the target slice."""


def measured(folder: Path, way: str, seed: int) -> Matched:
    """Match a pair after a change, and hold it against the truth of the modules as they were."""
    golden, target = open_dump(folder / "golden"), open_dump(folder / "target")
    total = Matched()
    for first, second in pair_slices(golden, target, Options().matching).pairs:
        slices = read_slice(golden, first), read_slice(target, second)
        changed = []
        for dumped, changes in zip(slices, _WAYS[way], strict=True):
            dice = random.Random(seed)  # noqa: S311 (no secret)
            for change in changes:
                dumped = change(dumped, dice)  # noqa: PLW2901
            changed.append(dumped)
        plan = match_slices(changed[0], changed[1], Options().matching)
        kept = [_as_they_were(old, new) for old, new in zip(slices, changed, strict=True)]
        total = total.plus(held_against_truth(kept[0], kept[1], plan, 0.0))
    return total


def _as_they_were(old: Slice, new: Slice) -> Slice:
    """Return the modules that are left, as they were."""
    left = {node.name for node in new.nodes}
    return replace(old, nodes=tuple(node for node in old.nodes if node.name in left))


def main() -> int:
    """Measure a folder of pairs in all ways."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--wrong", action="store_true", help="name the wrong matches")
    settings = parser.parse_args()
    folders = [each for each in sorted(settings.folder.iterdir()) if (each / "golden").is_dir()]
    for way in _WAYS:
        total = Matched()
        for folder in folders:
            if settings.only not in folder.name:
                continue
            for seed in range(1 if way in ("as it is", "classes") else settings.seeds):
                one = measured(folder, way, seed)
                total = total.plus(one)
                for name in one.wrong if settings.wrong else ():
                    print("     wrong ", folder.name, seed, name)
        share = total.right / max(1, total.possible)
        print(
            f"{way:10} matched {total.right:5}/{total.possible:5} ({share:.1%})  wrong {len(total.wrong):3}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
