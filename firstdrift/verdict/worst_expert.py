"""To which expert the worst row belongs, of rows of several experts that were compared as one tensor."""

import math
from collections.abc import Sequence
from itertools import accumulate, takewhile

from firstdrift.matching.plan import Joining, TensorPair
from firstdrift.metrics.measurement import Measurement


def expert_of_worst_row(pair: TensorPair, measured: Measurement) -> str | None:
    """Return the node of the expert whose row differs most; None if that is not known.

    Of what lies side by side (gate and up) it is the module around: in which of them the row differs is not
    known.
    """
    worst = measured.errors.worst_row if measured.errors is not None else None
    whole = (pair.target if pair.golden_parts else pair.golden).shape
    if worst is None or not whole:
        return None
    match pair.joining:
        case Joining.STACKED:
            return _expert_of_stack(pair, whole, worst)
        case Joining.OF_EXPERTS:
            return _expert_of_rows(pair, whole, worst)
        case _:
            return None


def _expert_of_rows(pair: TensorPair, whole: Sequence[int], worst: int) -> str | None:
    """Return the node of the expert that was given a row of those sorted by experts."""
    parts = pair.golden_parts or pair.target_parts
    width = parts[0].shape[-1] if parts and parts[0].shape else 0
    if not width or len(parts) != len(pair.part_nodes):
        return None
    count = len(parts) // max(1, whole[-1] // width)
    ends = accumulate(math.prod((part.shape or (0,))[:-1]) for part in parts[:count])
    at = next((at for at, end in enumerate(ends) if worst < end), None)
    return None if at is None else _around_all(pair.part_nodes[at::count])


def _expert_of_stack(pair: TensorPair, whole: Sequence[int], worst: int) -> str | None:
    """Return the node of the expert that a row of a stack of weights belongs to."""
    experts = whole[0]
    if not experts or len(pair.part_nodes) % experts:
        return None
    return _around_all(pair.part_nodes[worst // max(1, math.prod(whole[1:-1])) :: experts])


def _around_all(nodes: Sequence[str]) -> str | None:
    """Return the only node, or the name that those of several begin with."""
    if len(nodes) == 1:
        return nodes[0]
    levels = zip(*(node.split(".") for node in nodes), strict=False)
    return ".".join(names[0] for names in takewhile(lambda names: len(set(names)) == 1, levels)) or None
