"""Which pairs hold logits: the output of a language model's head, over its vocabulary."""

from firstdrift.matching.plan import TensorPair
from firstdrift.model.tensor import OUTPUT, is_floating
from firstdrift.operators.paths import runs_through_head


def is_file_of_logits(pair: TensorPair) -> bool:
    """Tell whether a tensor that has no name lies in a file, or folder, that is named after the head."""
    files = (record.location.file for record in (pair.golden, pair.target) if record.location is not None)
    return (
        pair.role is OUTPUT
        and is_floating(pair.target.dtype)
        and len(pair.target.shape or ()) > 0
        and "." not in pair.target_node
        and any(runs_through_head(f"{file.parent.name}/{file.stem}/") for file in files)
    )


def is_logits(pair: TensorPair) -> bool:
    """Tell whether a pair holds logits: a floating output, with a vocabulary dimension, of the head."""
    return (
        pair.role is OUTPUT
        and is_floating(pair.target.dtype)
        and len(pair.target.shape or ()) > 1
        and ".backward" not in pair.target_node
        and runs_through_head(pair.target_node)
    )
