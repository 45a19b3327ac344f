"""Which of a node's pairs of tensors is meant: each has a key, and one is looked at if nobody says which."""

from collections import Counter
from collections.abc import Sequence

from firstdrift.catalogue.comparisons.tree import Pair, Row
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.model.tensor import Role


def tensor_keys(pairs: Sequence[Pair]) -> list[str]:
    """Name the pairs of a node so that each can be asked for: "output.0", and "output.0~2" for a second."""
    seen: Counter[str] = Counter()
    keys = []
    for pair in pairs:
        label = pair.plan.target.label
        seen[label] += 1
        keys.append(label if seen[label] == 1 else f"{label}~{seen[label]}")
    return keys


def worst_tensor(row: Row, pairs: Sequence[Pair]) -> int | None:
    """Return which pair is looked at if nobody says: the worst with values, or the first; None of none."""
    with_data = [number for number, pair in enumerate(pairs) if pair.measurement.kind is MeasurementKind.DATA]
    for number in with_data:
        if pairs[number].index == row.judgement.worst_pair:
            return number
    outputs = [number for number in with_data if pairs[number].plan.target.role is Role.OUTPUT]
    return next(iter([*outputs, *with_data, *range(len(pairs))]), None)
