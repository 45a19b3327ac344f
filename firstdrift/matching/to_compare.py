"""What of a golden slice there is to compare, and which tensors hold what the model gives.

    golden    layers.0 ─ mlp ─ linear.3, silu.1      lm_head          a list without tensors: aside
    target    layers.0 ─ mlp                         lm_head

A pass that the target dump has not recorded is aside, and a module where it records operators alone: what the
module runs tells as much.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from firstdrift.matching.plan import ToCompare
from firstdrift.matching.structure.statistics_similarity import value_key
from firstdrift.model.names import PARAMETERS_GRAD
from firstdrift.model.node import API, BACKWARD, Direction, Node
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import INPUT, OUTPUT, Role, TensorRecord, is_floating
from firstdrift.operators.paths import runs_through_head

_NUMBERED: Final = re.compile(r"(^|\.)\d+$")
"""A module of a list: what it gives is more than what its last part gives."""


def what_to_compare(
    golden: Slice, target: Slice, is_asked: Callable[[Node], bool], alone: Sequence[str]
) -> ToCompare:
    """Say which golden nodes there are to compare with a target slice, of those that are asked for.

    Args:
        golden: the golden slice.
        target: the target slice.
        is_asked: tells which nodes are asked for.
        alone: names of the golden nodes without partner.
    """
    recorded = [node for node in golden.nodes if is_asked(node) and any(map(_is_recorded, node.tensors))]
    there = [node for node in target.nodes if any(map(_is_recorded, node.tensors))]
    passes = set(map(_pass_of, there))
    with_modules = {_pass_of(node) for node in there if node.kind is not API}
    told_by_operators = _modules_with_operators(golden, recorded)

    def is_to_compare(node: Node) -> bool:
        own = _pass_of(node)
        if _may_be_left_out(node) and own not in passes:
            return False
        return node.name not in told_by_operators or own in with_modules

    kept = list(filter(is_to_compare, recorded))
    names = {node.name for node in kept}
    aside = tuple(node.name for node in golden.nodes if node.name not in names)
    outputs, before = map(_places, _outputs(kept))
    return ToCompare(aside, outputs, before, len(there), _alike(kept, frozenset(alone)))


def _alike(nodes: Sequence[Node], alone: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Find among nodes with a partner those that give the values of one without: what was set around them."""
    if not alone:
        return ()
    given = [(node.name, value_key(_first(node, OUTPUT))) for node in nodes]
    known = {key: name for name, key in given if name not in alone and key is not None}
    return tuple((name, known[key]) for name, key in given if name in alone and key in known)


def _is_recorded(record: TensorRecord) -> bool:
    if record.statistics is not None:
        return record.is_tensor
    known = (record.digest, record.location, record.problem, record.shards)
    return record.is_tensor and any(one is not None for one in known)


def _pass_of(node: Node) -> tuple[Direction, bool]:
    return node.direction, node.type_name == PARAMETERS_GRAD


def _may_be_left_out(node: Node) -> bool:
    """Tell whether a node is of a pass without which a dump is one of the model all the same."""
    return node.direction is BACKWARD or node.type_name == PARAMETERS_GRAD


def _modules_with_operators(golden: Slice, recorded: Sequence[Node]) -> set[str]:
    """Name the modules in which operators were recorded."""
    parents = {node.name: node.parent for node in golden.nodes}
    found: set[str] = set()
    for node in recorded:
        above = node.parent if node.kind is API else None
        while above is not None and above not in found:
            found.add(above)
            above = parents.get(above)
    return found


_Held = tuple[Node, TensorRecord]
"""A tensor with the node that it belongs to."""


def _outputs(nodes: Sequence[Node]) -> tuple[Sequence[_Held], Sequence[_Held]]:
    """Return what holds what the head gives, or else the last module, or operator; and what that is given."""
    ordered = sorted(nodes, key=lambda node: node.order)
    outputs = ((node, _first(node, OUTPUT)) for node in ordered if node.direction is not BACKWARD)
    forward = [(node, output) for node, output in outputs if output is not None]
    if not forward:
        return (), ()
    node, output = last = _giver(forward)
    given = _first(node, INPUT)
    before = [] if given is None else [(node, given), *_with_values_of(given, forward)]
    return _with_values_of(output, forward) or list(_around(last, forward)), before


def _giver(forward: Sequence[_Held]) -> _Held:
    """Return what the head gives, or else the last module, or operator."""
    heads = [one for one in forward if runs_through_head(one[0].name) and len(one[1].shape or ()) > 1]
    modules = [one for one in forward if one[0].kind is not API]
    return (heads or modules or forward)[-1]


def _first(node: Node, role: Role) -> TensorRecord | None:
    """Return the first tensor of a role that holds fractions; one of a single number only if all do."""
    found = [one for one in node.records(role) if is_floating(one.dtype) and _is_recorded(one)]
    return next((one for one in found if one.shape), found[0] if found else None)


def _with_values_of(tensor: TensorRecord, forward: Sequence[_Held]) -> list[_Held]:
    """List the outputs that hold the values of a tensor, as far as statistics and digests tell."""
    key = value_key(tensor)
    outputs = ((node, one) for node, _ in forward for one in node.records(OUTPUT))
    return [] if key is None else [held for held in outputs if value_key(held[1]) == key]


def _around(last: _Held, forward: Sequence[_Held]) -> Iterator[_Held]:
    """Yield what gives the same as far as shapes tell: modules around a node, and what each runs last."""
    node, output = last
    yield last
    given = {one.name: (one, its) for one, its in forward}
    above = node.parent
    while above in given and given[above][1].shape == output.shape:
        yield given[above]
        above = given[above][0].parent
    while _NUMBERED.search(node.path) is None:
        inside = [one for one in forward if one[0].parent == node.name]
        if not inside or inside[-1][1].shape != output.shape:
            return
        yield inside[-1]
        node = inside[-1][0]


def _places(held: Sequence[_Held]) -> tuple[tuple[str, str], ...]:
    return tuple((node.name, record.label) for node, record in held)
