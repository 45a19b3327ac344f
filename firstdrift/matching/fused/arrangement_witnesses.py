"""What confirms how parts lie in the whole into which they were fused.

golden   q_proj k_proj v_proj    output.0   weight        layers.1: output.0   weight
target   qkv, in each group qqkv output.0   weight        layers.1: output.0   weight

An output is arranged as the rows of the weight are; without saved weights, and a weight itself, as in the
layers beside. An arrangement that none of these has is a fault: gate and up exchanged, heads mixed up.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from firstdrift.groups import grouped
from firstdrift.matching.fused.joined_tensors import are_located
from firstdrift.matching.fused.thresholds import MOST_WITNESSES
from firstdrift.matching.plan import Joining, TensorPair
from firstdrift.model.tensor import Role, TensorRecord

_NUMBER: Final = re.compile(r"\d+")


def with_witnesses(pairs: Sequence[TensorPair]) -> list[TensorPair]:
    """Let each tensor that is joined side by side say what has to be arranged as it is."""
    settled = list(pairs)
    joined = [at for at, pair in enumerate(pairs) if _is_read(pair)]
    weights = grouped((at for at in joined if _is_weight(pairs[at])), lambda at: pairs[at].match)
    for layers in grouped(joined, lambda at: _place(pairs[at])).values():
        for place, at in enumerate(layers):
            own = weights.get(pairs[at].match, ())
            beside = (*layers[:place][-1:], *layers[place + 1 :])[:MOST_WITNESSES]
            is_by_weight = own and not _is_weight(pairs[at])
            settled[at] = _witnessed(pairs[at], (pairs[other] for other in (own if is_by_weight else beside)))
    return settled


def _witnessed(pair: TensorPair, others: Iterable[TensorPair]) -> TensorPair:
    """Return a pair with what confirms its arrangement; a weight without others is its own witness."""
    witnesses = tuple(map(_records, others))
    return replace(pair, witnesses=witnesses or ((_records(pair),) if _is_weight(pair) else ()))


def _records(pair: TensorPair) -> tuple[TensorRecord, ...]:
    """Return the parts of a pair, then the whole."""
    return (*pair.golden_parts, pair.target) if pair.golden_parts else (*pair.target_parts, pair.golden)


def _is_weight(pair: TensorPair) -> bool:
    return pair.golden.role is Role.PARAMETER and len(pair.golden.shape or ()) > 1


def _is_read(pair: TensorPair) -> bool:
    is_joined = pair.joining is Joining.CONCATENATED and pair.incomparable is None
    return is_joined and are_located(_records(pair))


def _place(pair: TensorPair) -> tuple[str, ...]:
    """Return where a pair lies, the same for all layers."""
    nodes = (_NUMBER.sub("", node) for node in (pair.golden_node, pair.target_node))
    return *nodes, pair.golden.label, pair.target.label
