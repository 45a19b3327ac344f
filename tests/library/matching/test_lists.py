"""Modules are matched by name whether or not both tools recorded the lists that hold them."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import MatchingRules, Origin
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import Role, TensorRecord

GIVEN = TensorRecord(Role.OUTPUT, "0", "float32", (1, 5, 32))


def dump(*paths: str, lists: frozenset[str] = frozenset(), operators: frozenset[str] = frozenset()) -> Slice:
    """Make a slice of modules; each hangs at the innermost module around it, and lists gave nothing."""
    nodes = []
    for path in paths:
        around = path
        while around and around not in (*paths[: paths.index(path)], *paths[paths.index(path) + 1 :]):
            around = around.rpartition(".")[0]
        kind = NodeKind.API if path in operators else NodeKind.MODULE
        nodes.append(
            Node(
                name=path,
                path=path,
                kind=kind,
                type_name="Linear",
                direction=Direction.FORWARD,
                call=0,
                order=len(nodes),
                parent=around or None,
                tensors=() if path in lists else (GIVEN,),
            )
        )
    return Slice(SliceListing(Coordinates(), Path("made")), tuple(nodes))


ELEMENTS = {
    "a list": ("net.h.0.fc", "net.h.0", "net.h.1.fc", "net.h.1", "net"),
    "modules by name": ("net.parts.embed", "net.parts.head", "net"),
    "lists in a list": ("net.h.0.0.fc", "net.h.0.0", "net.h.1.0.fc", "net.h.1.0", "net"),
    "a list beside a module in a list": ("net.h.0.0", "net.h.0.1", "net.h.1", "net"),
    "a list in modules by name": ("net.parts.h.0", "net.parts.h.1", "net.parts.norm", "net"),
    "nothing around it": ("net.h.0", "net.h.1", "head"),
}
LISTS = {
    "a list": ("net.h",),
    "modules by name": ("net.parts",),
    "lists in a list": ("net.h.0", "net.h.1", "net.h"),
    "a list beside a module in a list": ("net.h.0", "net.h"),
    "a list in modules by name": ("net.parts.h", "net.parts"),
    "nothing around it": ("net.h", "net"),
}


@pytest.mark.parametrize("what", ELEMENTS)
@pytest.mark.parametrize("is_golden", [True, False])
def test_what_one_dump_records_in_lists_keeps_its_name_and_place(what: str, is_golden: bool) -> None:
    lists = LISTS[what]
    bare = dump(*ELEMENTS[what])
    full = dump(*ELEMENTS[what], *lists, lists=frozenset(lists))
    plan = (
        match_slices(full, bare, MatchingRules()) if is_golden else match_slices(bare, full, MatchingRules())
    )
    assert {match.target for match in plan.matches} == {(path,) for path in ELEMENTS[what]}
    assert all(match.golden == match.target for match in plan.matches)
    assert {match.origin for match in plan.matches} == {Origin.EXACT}
    left = plan.unmatched_golden if is_golden else plan.unmatched_target
    assert left == lists


def test_a_module_in_which_operators_run_is_no_list() -> None:
    operators = frozenset({"net.mlp.add"})
    paths = "net.mlp.fc", "net.mlp.add", "net.mlp", "net"
    full = dump(*paths, lists=frozenset({"net.mlp"}), operators=operators)
    bare = dump("net.mlp.fc", "net.mlp.add", "net", operators=operators)
    plan = match_slices(full, bare, MatchingRules())
    assert all(match.golden == match.target for match in plan.matches)
    assert "net.mlp" in plan.unmatched_golden


def test_modules_that_lie_in_each_other_are_no_endless_list() -> None:
    one, other, inner = dump("net.a", "net.b", "net.a.x").nodes
    around = [replace(node, parent=parent, tensors=()) for node, parent in ((one, "net.b"), (other, "net.a"))]
    cyclic = Slice(SliceListing(Coordinates(), Path("made")), (*around, inner))
    plan = match_slices(cyclic, dump("net.a.x"), MatchingRules())
    assert [(match.golden, match.target) for match in plan.matches] == [(("net.a.x",), ("net.a.x",))]
