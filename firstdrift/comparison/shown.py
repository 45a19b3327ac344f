"""What the values of a pair of tensors show of how one became the other: a factor, a shift, exchanged rows.

Where values were recorded they are looked at from near. Statistics alone tell a factor, a dropout, other
signs, and that rounding is enough.
"""

from firstdrift.comparison.closeup import NothingToSeeError, load_pair
from firstdrift.matching.plan import Messages, TensorPair
from firstdrift.metrics.closeup.hint import HintKind
from firstdrift.metrics.closeup.statistics_dropout import dropout_of
from firstdrift.metrics.closeup.statistics_factor import constant_of, factor_of, rounding_of, signs_of
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.model.tensor import Role, coarsest_roundoff
from firstdrift.wording.message import Message

_SAID_ELSEWHERE = frozenset({HintKind.EQUAL, HintKind.NON_FINITE})


def shown(pair: TensorPair, measured: Measurement) -> Messages:
    """Say what the values of a pair show; nothing where they do not tell, or cannot be read any more."""
    if measured.kind is MeasurementKind.STATISTICS:
        return _by_statistics(pair, measured)
    try:
        found = _from_near(pair, measured) if measured.kind is MeasurementKind.DATA else ()
    except (NothingToSeeError, OSError):
        return ()
    return (Message.of("shown.values", tensor=pair.target.label, hints=found),) if found else ()


def _by_statistics(pair: TensorPair, measured: Measurement) -> Messages:
    if measured.golden is None or measured.target is None:
        return ()
    sides = measured.golden, measured.target
    roundoff = roundoff_of(pair, measured)
    says = (
        constant_of(*sides)
        or factor_of(*sides, roundoff)
        or dropout_of(*sides, roundoff)
        or signs_of(*sides, roundoff)
    )
    if says is None and pair.role is Role.OUTPUT:
        says = rounding_of(*sides, roundoff)
    return () if says is None else (Message.of("shown.statistics", tensor=pair.target.label, hint=says),)


def _from_near(pair: TensorPair, measured: Measurement) -> Messages:
    import numpy as np

    from firstdrift.metrics.closeup.hints import hints
    from firstdrift.metrics.closeup.sample import BUDGET, take_sample

    loaded = load_pair(pair, measured)
    with np.errstate(all="ignore"):
        sample = take_sample(loaded.golden, loaded.target, BUDGET, ())
        known = hints(loaded.golden, loaded.target, sample, roundoff_of(pair, measured), fine=loaded.fine)
    return tuple(hint.says for hint in known if hint.kind not in _SAID_ELSEWHERE)


def roundoff_of(pair: TensorPair, measured: Measurement) -> float:
    """Return the unit roundoff of the coarser of the formats that both sides were computed in."""
    return max(coarsest_roundoff(pair.golden.dtype, pair.target.dtype), measured.stored_roundoff or 0.0)
