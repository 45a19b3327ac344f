"""Which pairs hold logits: the output of a language model's head, over its vocabulary."""

from collections.abc import Iterable

from firstdrift.matching.plan import SlicePlan, TensorPair
from firstdrift.model.tensor import Role, is_floating
from firstdrift.operators.paths import runs_through_head
from firstdrift.verdict.row_errors import RowErrors


def is_logits(pair: TensorPair) -> bool:
    """Tell whether a pair holds logits: a floating output, with a vocabulary dimension, of the head."""
    return (
        pair.target.role is Role.OUTPUT
        and is_floating(pair.target.dtype)
        and len(pair.target.shape or ()) > 1
        and ".backward" not in pair.target_node
        and runs_through_head(pair.target_node)
    )


def count_outputs(errors: Iterable[RowErrors], plan: SlicePlan) -> int:
    """Count the rows whose output was compared; all that is inside the head counts as one."""
    compared = [plan.pairs[error.output_pair] for error in errors if error.output_pair is not None]
    heads = sum(is_logits(pair) for pair in compared)
    return len(compared) - heads + bool(heads)
