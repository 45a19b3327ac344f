"""Which pairs hold logits: the output of a language model's head, over its vocabulary."""

import re
from collections.abc import Iterable

from firstdrift.matching.plan import SlicePlan, TensorPair
from firstdrift.model.tensor import Role, is_floating
from firstdrift.verdict.row_errors import RowErrors

_HEADS = re.compile(r"(^|[._/])(lm_head|LmHead|output_layer|embed_out|logits|score)($|[./])")


def is_logits(pair: TensorPair) -> bool:
    """Tell whether a pair holds logits: a floating output, with a vocabulary dimension, of the head."""
    return (
        pair.target.role is Role.OUTPUT
        and is_floating(pair.target.dtype)
        and len(pair.target.shape or ()) > 1
        and ".backward" not in pair.target_node
        and _HEADS.search(pair.target_node) is not None
    )


def count_outputs(errors: Iterable[RowErrors], plan: SlicePlan) -> int:
    """Count the rows whose output was compared; all that is inside the head counts as one."""
    compared = [plan.pairs[error.output_pair] for error in errors if error.output_pair is not None]
    heads = sum(is_logits(pair) for pair in compared)
    return len(compared) - heads + bool(heads)
