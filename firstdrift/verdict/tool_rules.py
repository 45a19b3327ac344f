"""The rule sets `msprobe` and `msit`: pair by pair, as those tools document and implement them.

msprobe judges the rows of one record together, parameters counting as inputs. A dump is of one kind:
of tensors if most were saved, else of digests if any were recorded, else of statistics.

| level   | dump       | rule                                                                       |
| ------- | ---------- | -------------------------------------------------------------------------- |
| error   | digests    | digests or scalar arguments differ; nothing else is looked at              |
| warning | digests    | a digest on one side only, or whole numbers of different dtypes            |
| error   | others     | maximum or minimum not finite in the target alone                          |
| error   | others     | requires_grad, a scalar argument, a floating dtype or the shape differs    |
| error   | statistics | worst input norm error < 10 %, an output above 50 %                        |
| error   | tensors    | worst input 1/1000 share > 0.9, worst output < 0.1 (first output)          |
| warning | statistics | output norm error > 10 x input's, or > 10 % where the input's is 0 (first output) |
| warning | tensors    | worst input cosine > 0.9 and worst output 0.1 below it (first output)      |

msit has no verdict of its own; its guide calls a token good at cosine > 0.999 and KL < 0.005
(bfloat16) or KL < 0.0001 (anything finer).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from firstdrift.groups import firsts, known, seconds
from firstdrift.matching.plan import SlicePlan, TensorPair
from firstdrift.metrics.measurement import Measurement, MeasurementKind, PairErrors, SideSummary
from firstdrift.model.tensor import Role, is_floating
from firstdrift.verdict.judgement import PairJudgement, Verdict
from firstdrift.verdict.movable_thresholds import DEFAULTS, Thresholds
from firstdrift.verdict.pair_error import PairError, why_incomparable
from firstdrift.wording.message import Message

_NEVER_JUDGED = frozenset(
    {
        "empty",
        "empty_like",
        "numpy",
        "to",
        "__setitem__",
        "empty_with_format",
        "new_empty_strided",
        "new_empty",
        "empty_strided",
    }
)
_OUTPUTS_JUDGED_ALONE = frozenset(
    {"_reduce_scatter_base", "_all_gather_base", "all_to_all_single", "batch_isend_irecv"}
)
_FUSED_NAMES = ("qkv", "gate_up")


_Reasons: TypeAlias = list[list[tuple[Verdict, Message]]]


class _Item(NamedTuple):
    place: int
    pair: TensorPair
    measured: Measurement


def judge_by_msprobe(
    plan: SlicePlan,
    measurements: Sequence[Measurement],
    errors: Sequence[PairError],
    limits: Thresholds = DEFAULTS,
) -> list[PairJudgement]:
    """Judge every pair of a slice as `msprobe compare` does."""
    reasons: _Reasons = [[] for _ in plan.pairs]
    records: dict[int, list[_Item]] = {}
    for index, pair in enumerate(plan.pairs):
        records.setdefault(pair.match, []).append(_Item(index, pair, measurements[index]))
    kind = _kind_of_dump(plan.pairs)
    for items in records.values():
        _judge_record(items, kind, reasons, limits)
    return [
        _judged(pair, measurements[index], errors[index], reasons[index])
        for index, pair in enumerate(plan.pairs)
    ]


def _kind_of_dump(pairs: Sequence[TensorPair]) -> MeasurementKind:
    records = [record for pair in pairs for record in (pair.golden, pair.target) if record.is_tensor]
    saved = sum(record.location is not None for record in records)
    if 2 * saved > len(records):
        return MeasurementKind.DATA
    recorded = any(record.digest is not None for record in records)
    return MeasurementKind.DIGEST if recorded else MeasurementKind.STATISTICS


def _judge_record(
    items: Sequence[_Item], kind: MeasurementKind, reasons: _Reasons, limits: Thresholds
) -> None:
    operator = _second_field(items[0].pair.target_node)
    if operator in _NEVER_JUDGED:
        return
    alone = operator in _OUTPUTS_JUDGED_ALONE
    of_row = _digest_reasons if kind is MeasurementKind.DIGEST else _row_reasons
    for item in items:
        if not alone or item.pair.role is Role.OUTPUT:
            reasons[item.place] += of_row(item)
    if not alone and kind is not MeasurementKind.DIGEST:
        _record_reasons(items, kind, reasons, limits)


def _second_field(name: str) -> str:
    return name.split(".")[1] if "." in name else name


def _judged(
    pair: TensorPair, measured: Measurement, error: PairError, reasons: list[tuple[Verdict, Message]]
) -> PairJudgement:
    if reasons:
        worst = max(firsts(reasons), key=lambda verdict: verdict.severity)
        return PairJudgement(worst, error.value, tuple(seconds(reasons)))
    if measured.kind is MeasurementKind.INCOMPARABLE:
        return PairJudgement(Verdict.INCOMPARABLE, None, (why_incomparable(pair, measured),))
    return PairJudgement(Verdict.PASS, error.value)


def _is_paired(item: _Item) -> bool:
    """Tell whether the tool pairs the two: it does not if their dtypes differ, but for floating ones."""
    golden, target = item.pair.golden.dtype, item.pair.target.dtype
    return golden == target or (is_floating(golden) and is_floating(target))


def _digest_reasons(item: _Item) -> list[tuple[Verdict, Message]]:
    golden, target = item.pair.golden, item.pair.target
    if not target.is_tensor and not golden.is_tensor:
        return [(Verdict.ERROR, Message.of("tool.scalars"))] if item.measured.equal is False else []
    if golden.digest == target.digest:
        return []
    if golden.digest is None or target.digest is None or not _is_paired(item):
        return [(Verdict.WARNING, Message.of("tool.no_digest"))]
    return [(Verdict.ERROR, Message.of("tool.digests"))]


def _row_reasons(item: _Item) -> list[tuple[Verdict, Message]]:
    if not _is_paired(item):
        return []
    return [(Verdict.ERROR, reason) for is_wrong, reason in _WRONG if is_wrong(item)]


def _is_overflow(item: _Item) -> bool:
    return _bad_extreme(item.measured.target) and not _bad_extreme(item.measured.golden)


def _has_other_requires_grad(item: _Item) -> bool:
    golden, target = item.pair.golden.requires_grad, item.pair.target.requires_grad
    return None not in {golden, target} and golden != target


def _has_other_scalar(item: _Item) -> bool:
    are_scalars = not item.pair.target.is_tensor and not item.pair.golden.is_tensor
    return are_scalars and item.measured.equal is False and item.pair.role is not Role.OUTPUT


def _has_other_dtype(item: _Item) -> bool:
    is_fused = any(name in item.pair.golden_node for name in _FUSED_NAMES)
    return item.pair.golden.dtype != item.pair.target.dtype and not is_fused


def _has_other_shape(item: _Item) -> bool:
    golden, target = item.pair.golden, item.pair.target
    return target.is_tensor and golden.is_tensor and golden.shape != target.shape


_WRONG: Final = (
    (_is_overflow, Message.of("tool.non_finite")),
    (_has_other_requires_grad, Message.of("tool.requires_grad")),
    (_has_other_scalar, Message.of("tool.scalars")),
    (_has_other_dtype, Message.of("tool.dtypes")),
    (_has_other_shape, Message.of("tool.shapes")),
)
"""What is an error of a row, in the order in which it is said."""


def _bad_extreme(side: SideSummary | None) -> bool:
    if side is None:
        return False
    if side.nan or side.positive_infinity or side.negative_infinity:
        return True
    return any(value is not None and not math.isfinite(value) for value in (side.maximum, side.minimum))


def _record_reasons(
    items: Sequence[_Item], kind: MeasurementKind, reasons: _Reasons, limits: Thresholds
) -> None:
    outputs = [item for item in items if item.pair.role is Role.OUTPUT]
    inputs = [item for item in items if item.pair.role is not Role.OUTPUT]
    if not outputs:
        return
    if kind is MeasurementKind.STATISTICS:
        _norm_reasons(inputs, outputs, reasons, limits)
    elif kind is MeasurementKind.DATA:
        reasons[outputs[0].place] += _value_reasons(inputs, outputs, limits)


def _norm_reasons(
    inputs: Sequence[_Item], outputs: Sequence[_Item], reasons: _Reasons, limits: Thresholds
) -> None:
    worst_in = _worst(map(_norm_error, inputs))
    errors = {item.place: error for item in outputs if (error := _norm_error(item)) is not None}
    for place, error in errors.items():
        if worst_in < limits.msprobe_norm_in and error > limits.msprobe_norm_out:
            off = Message.of("tool.norm", limit=100 * limits.msprobe_norm_out)
            reasons[place].append((Verdict.ERROR, off))
    growth = limits.msprobe_norm_growth
    most = growth * worst_in if worst_in else limits.msprobe_norm_alone
    if _worst(errors.values()) > most:
        grown = Message.of("tool.norm_growth", factor=growth)
        reasons[outputs[0].place].append((Verdict.WARNING, grown))


def _worst(errors: Iterable[float | None]) -> float:
    return max((error for error in errors if error is not None and math.isfinite(error)), default=0.0)


def _value_reasons(
    inputs: Sequence[_Item], outputs: Sequence[_Item], limits: Thresholds
) -> Iterator[tuple[Verdict, Message]]:
    share_in, share_out = _lowest(inputs, _share), _lowest(outputs, _share)
    if share_in > limits.msprobe_share_in and share_out < limits.msprobe_share_out:
        shares = {"inputs": 100 * limits.msprobe_share_in, "output": 100 * limits.msprobe_share_out}
        yield Verdict.ERROR, Message.of("tool.share", **shares)
    cosine_in, cosine_out = _lowest(inputs, _cosine), _lowest(outputs, _cosine)
    drop = limits.msprobe_cosine_drop
    if cosine_in > limits.msprobe_cosine_in and cosine_in - cosine_out > drop:
        yield Verdict.WARNING, Message.of("tool.cosine_drop", drop=drop)


def _norm_error(item: _Item) -> float | None:
    golden, target, measured = item.pair.golden, item.pair.target, item.measured
    if not golden.is_tensor and not target.is_tensor:
        return _relative(golden.scalar, target.scalar)
    if golden.statistics is not None and target.statistics is not None:
        return _relative(golden.statistics.norm, target.statistics.norm)
    return measured.differences.relative_norm if measured.differences is not None else None


def _relative(golden: float | str | None, target: float | str | None) -> float | None:
    try:
        g, t = float(golden), float(target)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    if g == t or not (math.isfinite(g) and math.isfinite(t)):
        return None
    return abs((t - g) / g) if g else math.inf


def _lowest(items: Sequence[_Item], of: Callable[[_Item], float | None]) -> float:
    return min(known(map(of, items)), default=1.0)


def _share(item: _Item) -> float | None:
    errors = _comparable_errors(item)
    return errors.share_within_1e3 if errors is not None else None


def _cosine(item: _Item) -> float | None:
    errors = _comparable_errors(item)
    return errors.cosine_similarity if errors is not None else None


def _comparable_errors(item: _Item) -> PairErrors | None:
    """Return the errors of a pair that the tool computes any of: not of single elements, nor of odd NaNs."""
    errors = item.measured.errors
    if errors is None or errors.size < 2 or errors.mismatched_nonfinite:  # noqa: PLR2004
        return None
    return errors


def judge_by_msit(
    plan: SlicePlan,
    measurements: Sequence[Measurement],
    errors: Sequence[PairError],
    limits: Thresholds = DEFAULTS,
) -> list[PairJudgement]:
    """Judge the outputs of a slice by the limits of msit's guide."""
    return [
        _by_limits(pair, measured, error, limits)
        for pair, measured, error in zip(plan.pairs, measurements, errors, strict=True)
    ]


def _by_limits(
    pair: TensorPair, measured: Measurement, error: PairError, limits: Thresholds
) -> PairJudgement:
    if measured.kind is MeasurementKind.INCOMPARABLE:
        return PairJudgement(Verdict.INCOMPARABLE, None, (why_incomparable(pair, measured),))
    if error.non_finite:
        return PairJudgement(Verdict.ERROR, error.value, (Message.of("pair.non_finite"),))
    if pair.role is not Role.OUTPUT or measured.errors is None or error.discrete:
        return PairJudgement(Verdict.PASS, error.value)
    reasons = []
    cosine = measured.errors.cosine_similarity
    if cosine is not None and cosine <= limits.msit_cosine:
        reasons.append(Message.of("tool.cosine", cosine=cosine, limit=limits.msit_cosine))
    if measured.logits is not None:
        limit = limits.msit_kl_bfloat16 if pair.target.dtype == "bfloat16" else limits.msit_kl
        if measured.logits.kl_divergence >= limit:
            kl_divergence = measured.logits.kl_divergence
            reasons.append(Message.of("tool.kl_divergence", kl_divergence=kl_divergence, limit=limit))
    return PairJudgement(Verdict.ERROR if reasons else Verdict.PASS, error.value, tuple(reasons))
