"""The gradient of what a module is given more than once: each place holds a part of it.

golden   attention(hidden)                   target   attention(query, key, value), all three the hidden state
         gradient: output.0                           gradient: output.0 + output.1 + output.2
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import takewhile

from msgspec.structs import replace

from firstdrift.groups import known
from firstdrift.matching.implementations.one_tensor import Whole, as_given, said
from firstdrift.matching.implementations.views import floating
from firstdrift.matching.structure.statistics_similarity import value_key
from firstdrift.matching.tree import SliceTree
from firstdrift.model.tensor import Role, TensorRecord, shared_location


def repeated_inputs(tree: SliceTree) -> Mapping[str, int]:
    """Return by the names of backward modules how often, from the first place on, one tensor was given."""
    return dict(_repeated(tree))


def _repeated(tree: SliceTree) -> Iterator[tuple[str, int]]:
    for index in tree.modules(tree.forward_calls.values()):
        times = _times_first(list(map(value_key, floating(tree.nodes[index].records(Role.INPUT)))))
        backward = tree.backward_of(index)
        if times > 1 and backward is not None:
            yield tree.nodes[backward].name, times


def _times_first(keys: Sequence[Hashable | None]) -> int:
    return len(list(takewhile(lambda key: key == keys[0] is not None, keys)))


def whole_gradient(side: str, given: Sequence[TensorRecord], times: int) -> Whole | None:
    """Return the sum of the first parts of a gradient; None without values of all.

    Of what is given by keyword no gradient is recorded: its part is missing.
    """
    parts = given[:times]
    if len(parts) == times == 1:
        return as_given(parts)
    locations = known(part.location for part in parts)
    if len(locations) != times or len({part.shape for part in parts}) > 1:
        return None
    location = shared_location(locations, None)
    return replace(parts[0], statistics=None, digest=None, location=location), said(side, parts)
