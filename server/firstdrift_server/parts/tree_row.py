"""One row of the tree as pages and JSON show it."""

from collections.abc import Collection
from typing import Any

from firstdrift.catalogue.comparisons.tree import Row
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.verdict.judgement import ORIGINS

UNMATCHED = "unmatched"
"""What stands for the verdict of a row that was not compared."""


def row_object(row: Row, kinds: Collection[MeasurementKind] = ()) -> dict[str, Any]:
    """Describe a row: what it is, what it was matched with, and what is said of it.

    `own` is true if something can be said of the node itself, and not just of what lies in it;
    `measured_from` are the kinds of its measurements: numbers from statistics are lower bounds.
    """
    tree, judged, match = row.tree, row.judgement, row.match
    return {
        "row": tree.index,
        "parent": tree.parent,
        "last": tree.last,
        "depth": tree.depth,
        "order": tree.order,
        "label": tree.label,
        "kind": str(tree.kind),
        "type_name": tree.type_name,
        "direction": str(tree.direction),
        "path": tree.path,
        "micro_step": tree.micro_step,
        "golden": list(tree.golden),
        "target": list(tree.target),
        "match": match
        and {
            "origin": str(match.origin),
            "score": match.score,
            "doubtful": match.doubtful,
            "reasons": list(match.reasons),
        },
        "verdict": UNMATCHED if match is None else str(judged.verdict),
        "class": str(judged.node_class),
        "own": bool(kinds) or judged.node_class in ORIGINS,
        "measured_from": sorted(kinds),
        "reasons": list(judged.reasons),
        "rule": judged.rule,
        "input_error": judged.input_error,
        "parameter_error": judged.parameter_error,
        "output_error": judged.output_error,
        "amplification": judged.amplification,
        "below": {
            "error": judged.below.error,
            "warning": judged.below.warning,
            "incomparable": judged.below.incomparable,
            "unmatched": judged.below.unmatched,
            "origins": judged.below.origins,
            "worst": str(judged.below.worst),
        },
    }
