"""Which pairs hold logits: the output of a language model's head, over its vocabulary."""

from firstdrift.matching.plan import TensorPair
from firstdrift.model.tensor import Role, is_floating
from firstdrift.operators.paths import runs_through_head


def is_logits(pair: TensorPair) -> bool:
    """Tell whether a pair holds logits: a floating output, with a vocabulary dimension, of the head."""
    return (
        pair.target.role is Role.OUTPUT
        and is_floating(pair.target.dtype)
        and len(pair.target.shape or ()) > 1
        and ".backward" not in pair.target_node
        and runs_through_head(pair.target_node)
    )
