"""In what order the elements lie that linear modules hold and give, and what confirms it.

golden   q_proj.weight [64, 48]   output.0 [2, 9, 64]      the rows of the weight by halves
target   q_proj.weight [64, 48]   output.0 [2, 9, 64]      the halves taking turns: so does what it gives

Values tell the order once they are read. What a module gives lies as its weight does, its weight as those
of the same module in the layers beside it; without saved weights what it gives lies as there. What lies
otherwise than its witnesses is faulty; of what is the same as it lies that is said. A gradient lies as what
it is the gradient of.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from firstdrift.matching.implementations.thresholds import OTHER_FORM, OTHER_ORDER, TWO_PARTS
from firstdrift.matching.layers_beside import with_layers_beside
from firstdrift.matching.plan import Joining, TensorPair
from firstdrift.matching.structure.statistics_similarity import value_distance
from firstdrift.model.tensor import Role, TensorRecord


def with_order_of_weights(
    pairs: Sequence[TensorPair], in_order: Callable[[TensorPair], bool]
) -> list[TensorPair]:
    """Let what two linear modules take and give lie in another order, where their weights do.

    Of what they take it may be known that it does not.
    """
    weight = weight_among(pairs)
    if weight is None:
        return list(pairs)
    witnesses = weight.golden, weight.target
    roles = (Role.INPUT, *_OF_FORWARD)
    return [pair if pair is weight or in_order(pair) else _in_order(pair, witnesses, roles) for pair in pairs]


def weight_among(pairs: Iterable[TensorPair]) -> TensorPair | None:
    """Return the pair of matrices among those of two linear modules whose values were saved."""
    return next((pair for pair in pairs if _is_weight(pair) and _is_read(pair)), None)


def with_order_of_forward(pairs: Iterable[TensorPair], weight: TensorPair) -> list[TensorPair]:
    """Let gradients of a linear module's result and parameters lie in another order, as its weight does."""
    witnesses = weight.golden, weight.target
    return [_in_order(pair, witnesses, (Role.INPUT, Role.GRADIENT)) for pair in pairs]


def with_order_of_given(pairs: Iterable[TensorPair], witnesses: Sequence[TensorRecord]) -> list[TensorPair]:
    """Let what is made of each element by itself lie in another order, as what it is made of may."""
    return [_in_order(pair, witnesses, (Role.INPUT, Role.OUTPUT)) if witnesses else pair for pair in pairs]


def with_order_of_layers(pairs: Sequence[TensorPair], matches: Container[int]) -> list[TensorPair]:
    """Let weights of linear modules, and what they give without, lie in another order, as in layers beside.

    What stands in no layers, as the weight of a head, has no other witness than itself.
    """
    settled = list(pairs)
    open_ones = (at for at, pair in enumerate(pairs) if pair.match in matches and _is_open(pair))
    for at, beside in with_layers_beside(pairs, open_ones):
        settled[at] = _as_in(pairs[at], beside)
    return settled


def _as_in(pair: TensorPair, beside: Iterable[TensorPair]) -> TensorPair:
    """Return a pair in whatever order those of the layers beside it confirm; a weight without, in any."""
    witnesses = [record for other in beside for record in (other.golden, other.target)]
    return _in_order(pair, witnesses) if witnesses or _is_weight(pair) else pair


def _is_open(pair: TensorPair) -> bool:
    return pair.joining is not Joining.REARRANGED and _is_read(pair)


def _is_weight(pair: TensorPair) -> bool:
    return pair.golden.role is Role.PARAMETER and len(pair.golden.shape or ()) == TWO_PARTS


_OF_FORWARD: Final = (Role.OUTPUT, Role.PARAMETER)
"""What may lie in another order in the forward pass: results, weights and biases."""


def _is_read(pair: TensorPair, roles: Container[Role] = _OF_FORWARD) -> bool:
    """Tell whether the values were saved of what may lie in another order."""
    sides = pair.golden, pair.target
    are_read = all(
        side.location is not None and side.shards is None and side.problem is None for side in sides
    )
    return are_read and pair.golden.role in roles


def _in_order(
    pair: TensorPair, witnesses: Iterable[TensorRecord], roles: Container[Role] = _OF_FORWARD
) -> TensorPair:
    """Return a pair in whatever order the witnesses confirm; without any its own values do."""
    if not _is_read(pair, roles):
        return pair
    return replace(pair, golden_parts=(pair.golden, *witnesses), joining=Joining.REARRANGED)


def may_lie_otherwise(pair: TensorPair, difference: float) -> bool:
    """Tell whether two tensors that statistics alone tell may hold the same numbers in another order.

    A window that is shifted before it is filled up, or after, is such a pair. `difference` is the relative L2
    difference of their elements, which is far beyond that of their statistics.
    """
    may_lie_so = pair.by_statistics and difference > OTHER_FORM
    distance = value_distance(pair.golden, pair.target) if may_lie_so else None
    return distance is not None and distance * OTHER_ORDER < difference
