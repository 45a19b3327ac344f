"""One row of the tree as pages and JSON show it."""

from collections.abc import Collection
from typing import Any

from msgspec.structs import asdict

from firstdrift.catalogue.comparisons.tree import Row
from firstdrift.groups import fields_of
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.verdict.judgement import ORIGINS
from firstdrift.verdict.tree import TreeRow

UNMATCHED = "unmatched"
"""What stands for the verdict of a row that was not compared."""


def row_object(row: Row, kinds: Collection[MeasurementKind] = ()) -> dict[str, Any]:
    """Describe a row: what it is, what it was matched with, and what is said of it.

    `own` is true if something can be said of the node itself, and not just of what lies in it;
    `measured_from` are the kinds of its measurements: numbers from statistics are lower bounds.
    """
    tree, judged, match = row.tree, row.judgement, row.match
    said = fields_of(judged, _OF_JUDGEMENTS)
    return (
        said
        | row_of_tree(tree)
        | {
            "path": tree.path,
            "micro_step": tree.micro_step,
            "match": match and fields_of(match, OF_MATCHES),
            "verdict": UNMATCHED if match is None else judged.verdict,
            "class": judged.node_class,
            "own": bool(kinds) or judged.node_class in ORIGINS,
            "measured_from": sorted(kinds),
            "below": asdict(judged.below),
        }
    )


def row_of_tree(tree: TreeRow) -> dict[str, Any]:
    """Describe what a row is, whatever was compared of it."""
    return {"row": tree.index} | fields_of(tree, _OF_ROWS)


_OF_ROWS = (
    *("parent", "last", "depth", "order", "label", "kind", "type_name", "direction"),
    *("golden", "target"),
)
_OF_JUDGEMENTS = (
    *("reasons", "rule", "amplification"),
    *("input_error", "parameter_error", "output_error"),
)
OF_MATCHES = ("origin", "score", "doubtful", "reasons")
"""What is said of how a match was found."""
