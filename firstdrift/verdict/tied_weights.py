"""Weights that one run alone has twice, as a model whose head is tied to its embedding has, by statistics."""

import math
import sys
from collections.abc import Iterator

from firstdrift.metrics.measurement import SideSummary
from firstdrift.verdict.evidence import Evidence
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named


def tied_on_one_side(evidence: Evidence, pair: int) -> Iterator[Message]:
    """Say with which other weight one side alone has one in common."""
    here, place = evidence.measurements[pair], evidence.place_of(pair)
    if len(evidence.plan.pairs[pair].golden.shape or ()) <= 1:  # vectors are made of ones or zeros
        return
    if any(map(_is_constant, (here.golden, here.target))):
        return
    for other in evidence.parameters_like(pair):
        if evidence.place_of(other) == place:
            continue
        there = evidence.measurements[other]
        golden, target = _is_one(here.golden, there.golden), _is_one(here.target, there.target)
        if golden is not target:
            one, two = ("golden", "target") if golden else ("target", "golden")
            sides = {"side": side_named(one), "other": side_named(two)}
            yield Message.of("cause.tied", **sides, node=evidence.place_of(other))
            return


def _is_constant(side: SideSummary | None) -> bool:
    return side is None or side.maximum is None or side.maximum == side.minimum


def _is_one(here: SideSummary | None, there: SideSummary | None) -> bool:
    """Tell whether two tensors of a run are one, as all their statistics tell."""
    if here is None or there is None or here.size != there.size:
        return False
    told = [(getattr(here, name), getattr(there, name)) for name in ("norm", "maximum", "minimum", "mean")]
    order_of_adding = sys.float_info.epsilon * here.largest_norm
    return all(
        one is not None and other is not None and math.isclose(one, other, abs_tol=order_of_adding)
        for one, other in told
    )
