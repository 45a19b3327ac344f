"""What confirms how parts lie in the whole into which they were fused.

golden   q_proj k_proj v_proj    output.0   weight        layers.1: output.0   weight
target   qkv, in each group qqkv output.0   weight        layers.1: output.0   weight

An output is arranged as the rows of the weight are; without saved weights, and a weight itself, as in the
layers beside. An arrangement that none of these has is a fault: gate and up exchanged, heads mixed up.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from firstdrift.groups import grouped
from firstdrift.matching.fused.joined_tensors import are_located
from firstdrift.matching.layers_beside import with_layers_beside
from firstdrift.matching.plan import Joining, TensorPair
from firstdrift.model.tensor import PARAMETER, TensorRecord


def with_witnesses(pairs: Sequence[TensorPair]) -> list[TensorPair]:
    """Let each tensor that is joined side by side say what has to be arranged as it is."""
    settled = list(pairs)
    joined = [at for at, pair in enumerate(pairs) if _is_read(pair)]
    weights = grouped((at for at in joined if _is_weight(pairs[at])), lambda at: pairs[at].match)
    for at, beside in with_layers_beside(pairs, joined):
        own = weights.get(pairs[at].match, ())
        is_by_weight = own and not _is_weight(pairs[at])
        settled[at] = _witnessed(pairs[at], [pairs[other] for other in own] if is_by_weight else beside)
    return settled


def _witnessed(pair: TensorPair, others: Iterable[TensorPair]) -> TensorPair:
    """Return a pair with what confirms its arrangement; a weight without others is its own witness."""
    witnesses = tuple(map(_records, others))
    return replace(pair, witnesses=witnesses or ((_records(pair),) if _is_weight(pair) else ()))


def _records(pair: TensorPair) -> tuple[TensorRecord, ...]:
    """Return the parts of a pair, then the whole."""
    return (*pair.golden_parts, pair.target) if pair.golden_parts else (*pair.target_parts, pair.golden)


def _is_weight(pair: TensorPair) -> bool:
    return pair.golden.role is PARAMETER and len(pair.golden.shape or ()) > 1


def _is_read(pair: TensorPair) -> bool:
    if pair.joining is None or pair.incomparable is not None:
        return False
    return pair.joining is Joining.CONCATENATED and are_located(_records(pair))
