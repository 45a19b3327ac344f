"""Where two implementations draw the line between modules: what is done inside the one, and after the other.

golden   embedding (scaled inside)  ──────────────▶  norm
target   embedding  ── x sqrt(width), in the code ─▶  norm

The golden output is what the norm is given, the norms are given the same, and the target's embedding gives
something else: the two outputs are not one quantity, and their difference is no fault, nor is that of their
gradients. A fault that is carried on changes what the norm is given.

golden   norm: (1 + weight) x     target   norm: weight x

So it is with a weight: two modules that give the same with others keep them in other forms. Of a table that
is looked up, some rows may not have been asked for.

golden   attention -> output, shares     target   attention -> output, scores

What nobody takes, each implementation gives as it likes beside what it gives first: if it is far off where
the first agrees, it is another quantity. Not so in the backward pass: nobody takes a gradient as it is where
those of several uses are added up.
"""

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from firstdrift.groups import grouped
from firstdrift.matching.implementations.thresholds import OTHER_FORM, TIMES_NEARER
from firstdrift.matching.plan import TensorPair
from firstdrift.matching.structure.statistics_similarity import value_distance, value_key
from firstdrift.matching.tensors import BY_MAPPING
from firstdrift.model.names import with_direction
from firstdrift.model.tensor import Role, is_floating
from firstdrift.wording.message import Message

_Takers: TypeAlias = Mapping[Hashable, Sequence[TensorPair]]
"""Inputs by what tells their values."""
_Place: TypeAlias = tuple[str, str, str, str]
_OTHER_QUANTITY: Final = "matching.incomparable.other_quantity"
MADE_OTHERWISE: Final = Message.of("matching.incomparable.made_otherwise")
IN_OTHER_FORM: Final = Message.of("matching.incomparable.other_form")
_TAKEN_BY_NONE: Final = Message.of("matching.incomparable.taken_by_none")
_OTHER_QUANTITIES: Final = frozenset(
    {_OTHER_QUANTITY, MADE_OTHERWISE.id, IN_OTHER_FORM.id, _TAKEN_BY_NONE.id}
)


def is_other_quantity(pair: TensorPair) -> bool:
    """Tell whether the two tensors of a pair are not one quantity."""
    return pair.incomparable is not None and pair.incomparable.id in _OTHER_QUANTITIES


def with_boundaries(pairs: Sequence[TensorPair], outermost: Container[str] = ()) -> list[TensorPair]:
    """Say of outputs that are not one quantity that they cannot be compared; a mapping file pairs any.

    What the outermost golden modules give is taken by whoever calls them.
    """
    inputs = [pair for pair in pairs if pair.golden.role is Role.INPUT and pair.incomparable is None]
    of_golden = grouped(inputs, lambda pair: value_key(pair.golden))
    of_target = grouped(inputs, lambda pair: value_key(pair.target))
    for takers in (of_golden, of_target):
        takers.pop(None, None)
    given = grouped(filter(_tells_of_weights, pairs), lambda pair: pair.match)
    said = [_why_apart(pair, given, of_golden, of_target) for pair in pairs]
    said = [
        None if why is _TAKEN_BY_NONE and pair.golden_node in outermost else why
        for pair, why in zip(pairs, said, strict=True)
    ]
    outputs = _outputs_apart(zip(pairs, said, strict=True))
    return [
        pair if (apart := why or _of_gradient(pair, outputs)) is None else _kept_apart(pair, apart)
        for pair, why in zip(pairs, said, strict=True)
    ]


def _outputs_apart(said: Iterable[tuple[TensorPair, Message | None]]) -> dict[_Place, Message]:
    """Return why outputs are not one quantity, by where they are."""
    outputs = ((pair, why) for pair, why in said if pair.golden.role is Role.OUTPUT)
    return {_place(pair, _names(pair)): why for pair, why in outputs if why is not None}


def _kept_apart(pair: TensorPair, why: Message) -> TensorPair:
    return replace(pair, incomparable=why, joining=None, golden_parts=(), target_parts=())


def _of_gradient(pair: TensorPair, outputs: Mapping[_Place, Message]) -> Message | None:
    """Say why two gradients are not one quantity: those of outputs that are not."""
    names = _forward_names(pair)
    if pair.golden.role is not Role.INPUT or names == _names(pair) or BY_MAPPING in pair.transform:
        return None
    return outputs.get(_place(pair, names))


def _forward_names(pair: TensorPair) -> tuple[str, str]:
    return with_direction(pair.golden_node, "forward"), with_direction(pair.target_node, "forward")


def _names(pair: TensorPair) -> tuple[str, str]:
    return pair.golden_node, pair.target_node


def _place(pair: TensorPair, names: tuple[str, str]) -> _Place:
    """Return where two nodes have two outputs, or, in the backward pass, the gradients of these."""
    return *names, pair.golden.key, pair.target.key


def _why_apart(
    pair: TensorPair, given: Mapping[int, Sequence[TensorPair]], of_golden: _Takers, of_target: _Takers
) -> Message | None:
    """Say why two tensors are not one quantity; `given` has by match what tells of weights."""
    if BY_MAPPING in pair.transform:
        return None
    if _is_in_other_form(pair, given.get(pair.match, ())):
        return IN_OTHER_FORM
    taker = _contradicting(pair, of_golden, of_target)
    if taker is not None:
        return Message.of(_OTHER_QUANTITY, node=taker.golden_node)
    is_taken = value_key(pair.golden) in of_golden or value_key(pair.target) in of_target
    is_beside = not is_taken and _is_beside_first(pair, given.get(pair.match, ()))
    return _TAKEN_BY_NONE if is_beside else None


def _tells_of_weights(pair: TensorPair) -> bool:
    """Tell whether a tensor shows what a module did with its weights: its result, or ids that it looks up."""
    is_table = pair.golden.role is Role.INPUT and not is_floating(pair.golden.dtype)
    return pair.golden.is_tensor and (is_table or pair.golden.role is Role.OUTPUT)


def _is_in_other_form(pair: TensorPair, given: Sequence[TensorPair]) -> bool:
    """Tell whether two weights differ, and all that is made with them agrees but for rounding."""
    if pair.golden.role is not Role.PARAMETER or pair.incomparable is not None or not given:
        return False
    distance = value_distance(pair.golden, pair.target)
    made = [
        None if one.incomparable or one.golden.role is Role.INPUT else value_distance(one.golden, one.target)
        for one in given
    ]
    if distance is None or distance < OTHER_FORM:
        return False
    # Not nearer than the weights alone: a small bias that is wrong moves little of what is given.
    return all(one is not None and one * TIMES_NEARER < OTHER_FORM for one in made)


def _is_beside_first(pair: TensorPair, given: Sequence[TensorPair]) -> bool:
    """Tell whether an output is far off where the first output of its module agrees, or differs far less."""
    if not _is_compared_output(pair) or _forward_names(pair) != _names(pair):
        return False
    return _is_far_nearer(next(filter(_is_compared_output, given), pair), pair)


def _is_far_nearer(first: TensorPair, second: TensorPair) -> bool:
    nearest, distance = (value_distance(one.golden, one.target) for one in (first, second))
    if nearest is None or distance is None:
        return False
    return max(OTHER_FORM, nearest * TIMES_NEARER) < distance


def _is_compared_output(pair: TensorPair) -> bool:
    return pair.golden.role is Role.OUTPUT and pair.incomparable is None


def _contradicting(pair: TensorPair, of_golden: _Takers, of_target: _Takers) -> TensorPair | None:
    """Return what is given one output as it is, and the same in the other run, which made another."""
    if pair.golden.role is not Role.OUTPUT or pair.incomparable is not None:
        return None
    distance = value_distance(pair.golden, pair.target)
    if distance is None:
        return None
    for taker in (*of_golden.get(value_key(pair.golden), ()), *of_target.get(value_key(pair.target), ())):
        given = value_distance(taker.golden, taker.target)
        if given is not None and given * TIMES_NEARER < distance:
            return taker
    return None
