"""Input error against output error of the nodes of a slice: what lies above the diagonal makes the error."""

import math
import random
from typing import Any

from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.charts import NodeErrors, names_of_rows, node_errors
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair
from firstdrift.groups import positions
from firstdrift.paths import encodable
from firstdrift.strict_json import spelled_out
from firstdrift.verdict.limit import limit_of_nodes
from firstdrift.verdict.shown_classes import shown_class
from firstdrift_server.comparison.charts import logarithmic_range
from firstdrift_server.parts.measured_from import measured_from

WORST = 1500
"""How many nodes are drawn for their output error, and how many more for what they add to the error."""

RANDOM = 1000
"""How many of all others are drawn."""


def scatter(session: Session, pair: SlicePair) -> dict[str, Any]:
    """Give the nodes of a slice as points; of many, the worst and a random sample of the others.

    The sample is the same every time.
    """
    errors = node_errors(session, pair.id)
    drawn = choose(errors, pair.judgement.roundoff, seed=pair.id)
    rows = [errors.rows[at] for at in drawn]
    names = names_of_rows(session, pair.id, rows)
    shown = {at: shown_class(errors.classes[at], errors.rules[at]) for at in drawn}
    classes = sorted({errors.classes[at] for at in drawn})
    names_shown = sorted({*shown.values()})
    code, code_shown = positions(classes), positions(names_shown)
    limit = limit_of_nodes([pair.judgement])
    return {
        "slice": pair.position,
        "matched": errors.matched,
        "with_input": errors.with_input,
        "with_output": errors.with_output,
        "total": len(errors.rows),
        "shown": len(drawn),
        "factor": pair.judgement.limits.factor,
        "roundoff": pair.judgement.roundoff,
        "limit": limit,
        "range": logarithmic_range((*errors.inputs, *errors.outputs)),
        "class_names": classes,
        "rows": rows,
        "names": [encodable(names[row]) for row in rows],
        "inputs": [spelled_out(errors.inputs[at]) for at in drawn],
        "outputs": [spelled_out(errors.outputs[at]) for at in drawn],
        "classes": [code[errors.classes[at]] for at in drawn],
        "shown_names": names_shown,
        "shown_classes": [code_shown[shown[at]] for at in drawn],
        "kinds": [measured_from(errors.kinds[at]) for at in drawn],
        "rules": pair.judgement.rules,
    }


def choose(errors: NodeErrors, roundoff: float, seed: int) -> list[int]:
    """Choose the points to draw, in the order of the tree."""
    everything = range(len(errors.rows))
    if len(everything) <= 2 * WORST + RANDOM:
        return list(everything)
    outputs = list(map(_size, errors.outputs))
    added = [
        output - _size(max(error, roundoff)) if math.isfinite(error) else 0.0
        for output, error in zip(outputs, errors.inputs, strict=True)
    ]
    worst = set(sorted(everything, key=outputs.__getitem__)[-WORST:])
    worst |= set(sorted(set(everything) - worst, key=added.__getitem__)[-WORST:])
    others = sorted(set(everything) - worst)
    return sorted(worst | set(random.Random(seed).sample(others, RANDOM)))  # noqa: S311 - a sample, no secret


def _size(error: float) -> float:
    """Order errors; zero is less than any, NaN and infinity are more."""
    return math.inf if not math.isfinite(error) else math.log10(error) if error > 0 else -400.0
