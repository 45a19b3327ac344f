"""The rule set `bitwise`, pair by pair: what is not bit-equal is an error, however small.

| recorded of both sides | equal                           | different                                  |
| ---------------------- | ------------------------------- | ------------------------------------------ |
| values                 | passes (any NaN equals any NaN) | error, with the first element that differs |
| digests of one kind    | passes                          | error (a NaN with other bits is one, too)  |
| Python arguments       | passes; so do two devices       | error                                      |
| statistics             | not proven, so incomparable     | error                                      |
| dtypes, or sizes       |                                 | error, whatever else was recorded          |

What firstdrift computed before comparing it (a sum over ranks, a product with a matrix) proves nothing: it is
rounded anew. Where statistics of parts were put together, or stand against values, they prove a difference
only beyond their rounding.
"""

import math
import struct
from collections.abc import Sequence
from typing import Final

from firstdrift.matching.plan import Joining, SlicePlan, TensorPair
from firstdrift.metrics.digests import is_xor, measure_digests
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.metrics.statistics import statistic_that_differs
from firstdrift.model.tensor import ROUNDING, DataLocation, Sharding, TensorRecord, holds_a_part
from firstdrift.verdict.bit_count import BitCount
from firstdrift.verdict.fixed_thresholds import STATISTICS_ROUNDING
from firstdrift.verdict.judgement import PairJudgement, Verdict
from firstdrift.verdict.movable_thresholds import DEFAULTS, Thresholds
from firstdrift.verdict.pair_error import PairError, why_incomparable
from firstdrift.wording.message import Message

_COMPUTED: Final = frozenset({Sharding.SUMMED, Sharding.BY_VALUES})
_ARITHMETIC: Final = frozenset({Joining.SUMMED, Joining.ROTATED})
_UNPROVEN: Final = Message.of("bitwise.equal_statistics")


def judge_bitwise(
    plan: SlicePlan,
    measurements: Sequence[Measurement],
    errors: Sequence[PairError],
    limits: Thresholds = DEFAULTS,
) -> list[PairJudgement]:
    """Judge every pair of a slice by its bits alone; no threshold moves that."""
    del limits
    return [
        _judged(pair, measured, error)
        for pair, measured, error in zip(plan.pairs, measurements, errors, strict=True)
    ]


def count_of(pair: TensorPair, measured: Measurement, judged: PairJudgement) -> BitCount:
    """Count a pair that was judged."""
    if judged.verdict is Verdict.ERROR:
        return BitCount(different=1)
    if judged.verdict is not Verdict.PASS:
        return BitCount(unproven=1)
    if not pair.golden.is_tensor:
        return BitCount(arguments=1)
    if measured.bits is not None:
        return BitCount(values=1, elements=math.prod(pair.target.shape or ()))
    return BitCount(xor=1) if is_xor(pair.target) else BitCount(digests=1)


def _judged(pair: TensorPair, measured: Measurement, error: PairError) -> PairJudgement:
    found = _difference(pair, measured, error)
    if found is not None:
        return PairJudgement(Verdict.ERROR, error.value, (found,))
    if _is_proven(pair, measured):
        return PairJudgement(Verdict.PASS, error.value)
    return PairJudgement(Verdict.INCOMPARABLE, error.value, (_why_unproven(pair, measured),))


def _why_unproven(pair: TensorPair, measured: Measurement) -> Message:
    if measured.kind is MeasurementKind.INCOMPARABLE:
        return why_incomparable(pair, measured)
    if _is_computed(pair):
        return Message.of("bitwise.computed")
    return Message.of("bitwise.part") if holds_a_part(pair.golden) or holds_a_part(pair.target) else _UNPROVEN


def _is_computed(pair: TensorPair) -> bool:
    """Tell whether what is compared was computed from what was recorded."""
    return pair.joining in _ARITHMETIC or any(map(_was_computed, (pair.golden, pair.target)))


def _was_computed(record: TensorRecord) -> bool:
    if record.shards is not None and record.shards.sharding in _COMPUTED:
        return True
    return record.location is not None and _was_made(record.location)


def _was_made(where: DataLocation) -> bool:
    """Tell whether what is read from a place is multiplied, or added up, on the way."""
    added = bool(where.shards) and where.axis is None
    return added or any(step.other for step in where.view) or any(map(_was_made, where.shards))


def _is_proven(pair: TensorPair, measured: Measurement) -> bool:
    """Tell whether a pair without a known difference is known to have none."""
    if measured.kind is MeasurementKind.INCOMPARABLE or _is_computed(pair):
        return False
    if not pair.golden.is_tensor:
        return True
    if holds_a_part(pair.golden) or holds_a_part(pair.target):
        return False
    if measured.kind is MeasurementKind.DATA:
        return measured.bits is not None
    return _digests_agree(pair) is True


def _digests_agree(pair: TensorPair) -> bool | None:
    """Tell whether two digests are equal; None if there are no two of one kind."""
    if not (pair.golden.digest and pair.target.digest):
        return None
    return measure_digests(pair.golden, pair.target).equal


def _difference(pair: TensorPair, measured: Measurement, error: PairError) -> Message | None:
    """Say how two are known to differ; None if they are not."""
    golden, target = pair.golden, pair.target
    if golden.problem is not None or target.problem is not None or _is_computed(pair):
        return None
    if not (golden.is_tensor or target.is_tensor):
        return _other_argument(golden, target, measured)
    return _other_record(golden, target) or _other_values(pair, measured, error)


def _other_argument(golden: TensorRecord, target: TensorRecord, measured: Measurement) -> Message | None:
    if golden.dtype != target.dtype:
        return Message.of("bitwise.types", golden=golden.dtype, target=target.dtype)
    if measured.equal is False or _other_float(golden, target):
        return Message.of("bitwise.arguments", golden=golden.scalar, target=target.scalar)
    return None


def _other_float(golden: TensorRecord, target: TensorRecord) -> bool:
    """Tell whether two floats that are equal as numbers have other bits: zeros of either sign."""
    if golden.dtype != "float" or golden.scalar is None or target.scalar is None:
        return False
    try:
        left, right = float(golden.scalar), float(target.scalar)
    except ValueError:
        return False
    are_nan = math.isnan(left) and math.isnan(right)
    return not are_nan and struct.pack("d", left) != struct.pack("d", right)


def _other_record(golden: TensorRecord, target: TensorRecord) -> Message | None:
    """Say how what was written of two differs, before any value is looked at."""
    if golden.is_tensor is not target.is_tensor:
        return Message.of("bitwise.kinds")
    if golden.dtype and target.dtype and golden.dtype != target.dtype:
        return Message.of("bitwise.dtypes", golden=golden.dtype, target=target.dtype)
    shapes = golden.shape, target.shape
    if shapes[0] is None or shapes[1] is None or math.prod(shapes[0]) == math.prod(shapes[1]):
        return None
    return Message.of("bitwise.shapes", golden=shapes[0], target=shapes[1])


def _other_values(pair: TensorPair, measured: Measurement, error: PairError) -> Message | None:
    if measured.kind is MeasurementKind.INCOMPARABLE:
        return None
    if measured.kind is MeasurementKind.DATA:
        return _other_element(measured)
    match _digests_agree(pair):
        case True:
            return None
        case False:
            return Message.of("bitwise.digests", golden=pair.golden.digest, target=pair.target.digest)
    return _other_statistics(pair, error)


def _other_element(measured: Measurement) -> Message | None:
    bits = measured.bits
    if bits is None:
        return Message.of("bitwise.values") if measured.equal is False else None
    if bits.index is None:
        return None
    return Message.of("bitwise.element", index=bits.index, golden=bits.golden, target=bits.target)


def _other_statistics(pair: TensorPair, error: PairError) -> Message | None:
    golden, target = pair.golden.statistics, pair.target.statistics
    # Those of parts were put together, with rounding; those of values were computed here.
    if golden is None or target is None or pair.is_joined:
        rounding = STATISTICS_ROUNDING.value * ROUNDING["float32"]
        return Message.of("bitwise.values") if (error.value or 0.0) > rounding else None
    name = statistic_that_differs(golden, target)
    if name is None:
        return None
    sides = {"golden": getattr(golden, name), "target": getattr(target, name)}
    return Message.of("bitwise.statistics", name=Message.of(f"bitwise.{name}"), **sides)
