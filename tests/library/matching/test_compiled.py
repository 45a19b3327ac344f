"""A compiled graph is matched with its source by what its nodes were made from, whatever they are called."""

from pathlib import Path

import pytest

from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import MatchingRules, SlicePlan
from firstdrift.matching.tensors import BY_SHAPE, shapes_differ
from firstdrift.model.node import Direction, Node, NodeKind, Source
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.wording.message import Message

SHAPE = (4, 16)


def node(
    name: str,
    type_name: str,
    inputs: int | list[tuple[int, ...]] = 1,
    outputs: int = 1,
    sources: tuple[Source, ...] = (),
    *,
    parent: str | None = None,
    kind: NodeKind = NodeKind.API,
) -> Node:
    shapes = [SHAPE] * inputs if isinstance(inputs, int) else inputs
    return Node(
        name=f"{parent}.{name}" if parent else name,
        path=name,
        kind=kind,
        type_name=type_name,
        direction=Direction.FORWARD,
        call=0,
        order=0,
        parent=parent,
        tensors=(
            *(TensorRecord(Role.INPUT, str(at), "float32", shape) for at, shape in enumerate(shapes)),
            *(TensorRecord(Role.OUTPUT, str(at), "float32", SHAPE) for at in range(outputs)),
        ),
        sources=sources,
    )


def source(name: str, *labels: str) -> Source:
    return Source(
        name, tuple((label.partition("=")[0], label.partition("=")[2] or label) for label in labels)
    )


def plan(golden: list[Node], target: list[Node]) -> SlicePlan:
    listing = SliceListing(Coordinates(), Path())
    return match_slices(Slice(listing, tuple(golden)), Slice(listing, tuple(target)), MatchingRules())


def matches(found: SlicePlan) -> list[tuple[str, str]]:
    return [(" ".join(match.golden), " ".join(match.target)) for match in found.matches]


def pairs(found: SlicePlan) -> list[str]:
    return [
        f"{pair.golden_node}:{pair.golden.label} = {pair.target_node}:{pair.target.label}"
        for pair in found.pairs
    ]


FX = [
    node("mm", "aten.mm", 2),
    node("add", "aten.add", 2),
    node("sig", "aten.sigmoid"),
    node("mul", "aten.mul", 2),
]
GE = [
    node("MatMul", "MatMulV2", 2, 1, (source("mm", "input.0", "input.1", "output.0"),)),
    node(
        "AddSigMul",
        "Fused",
        2,
        1,
        (source("add", "input.0", "input.1"), source("sig"), source("mul", "output.0")),
    ),
    node("trans_Cast", "Cast"),
]


@pytest.mark.parametrize("swapped", [False, True])
def test_operators_are_matched_with_what_they_were_made_from(*, swapped: bool) -> None:
    found = plan(GE, FX) if swapped else plan(FX, GE)
    said = [("mm", "MatMul"), ("add sig mul", "AddSigMul")]
    assert matches(found) == ([(target, golden) for golden, target in said] if swapped else said)
    lines = [
        "mm:input.0 = MatMul:input.0",
        "mm:input.1 = MatMul:input.1",
        "mm:output.0 = MatMul:output.0",
        "add:input.0 = AddSigMul:input.0",
        "add:input.1 = AddSigMul:input.1",
        "mul:output.0 = AddSigMul:output.0",
    ]
    assert pairs(found) == ([" = ".join(line.split(" = ")[::-1]) for line in lines] if swapped else lines)
    assert (found.unmatched_golden if swapped else found.unmatched_target) == ("trans_Cast",)
    inner = found.unmatched_target_tensors if swapped else found.unmatched_golden_tensors
    assert [(one.node, one.record.label) for one in inner] == [
        ("add", "output.0"),
        ("sig", "input.0"),
        ("sig", "output.0"),
        ("mul", "input.0"),
        ("mul", "input.1"),
    ]


def test_the_reason_names_both_sides() -> None:
    one = Message.of("matching.reason.compiled", made=("MatMul",), sources=("mm",))
    other = Message.of("matching.reason.compiled", made=("AddSigMul",), sources=("add", "sig", "mul"))
    assert [match.reasons for match in plan(FX, GE).matches] == [(one,), (other,)]
    assert plan(GE, FX).matches[0].reasons == (one,)


def test_what_a_compiler_put_in_is_not_matched_with_what_it_left_out() -> None:
    golden = [*FX, node("lost", "aten.add", 2)]
    target = [*GE, node("Put", "Add", 2)]
    found = plan(golden, target)
    assert found.unmatched_golden == ("lost",)
    assert found.unmatched_target == ("trans_Cast", "Put")


def test_one_node_may_have_become_several() -> None:
    golden = [node("norm", "aten.native_layer_norm", 3, 3)]
    target = [
        node("Norm", "LayerNorm", 3, 1, (source("norm", "input.0", "output.0"),)),
        node("Mean", "ReduceMean", 1, 1, (source("norm", "output.0=output.1"),)),
    ]
    found = plan(golden, target)
    assert matches(found) == [("norm", "Norm Mean")]
    assert pairs(found) == [
        "norm:input.0 = Norm:input.0",
        "norm:output.0 = Norm:output.0",
        "norm:output.1 = Mean:output.0",
    ]


def test_where_parts_overlap_what_gives_the_same_decides() -> None:
    golden = [node("a", "aten.add"), node("b", "aten.mul")]
    target = [
        node("X", "Fused", 1, 1, (source("a", "output.0"), source("b"))),
        node("Y", "Fused", 1, 1, (source("b", "output.0"),)),
    ]
    assert matches(plan(golden, target)) == [("a", "X"), ("b", "Y")]


def test_inputs_in_another_order_are_paired_by_shape_and_never_against_it() -> None:
    golden = [node("emb", "aten.embedding", [(100, 8), (5,)]), node("mm", "aten.mm", [(4, 8), (8, 2)])]
    target = [
        node("Gather", "Gather", [(5,), (100, 8)], 1, (source("emb", "input.0", "input.1", "output.0"),)),
        node("MatMul", "MatMul", [(4, 8), (2, 8)], 1, (source("mm", "input.0", "input.1", "output.0"),)),
    ]
    found = plan(golden, target)
    assert pairs(found) == [
        "emb:output.0 = Gather:output.0",
        "emb:input.0 = Gather:input.1",
        "emb:input.1 = Gather:input.0",
        "mm:input.0 = MatMul:input.0",
        "mm:output.0 = MatMul:output.0",
    ]
    assert [pair.transform for pair in found.pairs][1:3] == [(BY_SHAPE,)] * 2
    assert [one.record.shape for one in found.unmatched_target_tensors] == [(2, 8)]


def test_outputs_of_other_shapes_are_incomparable_not_left_out() -> None:
    golden = [node("mm", "aten.mm", 1, 1)]
    target = [node("MatMul", "MatMul", 1, 1, (source("mm", "output.0"),))]
    record = TensorRecord(Role.OUTPUT, "0", "float32", (7,))
    target = [
        Node(**{name: getattr(target[0], name) for name in Node.__struct_fields__} | {"tensors": (record,)})
    ]
    (pair,) = plan(golden, target).pairs
    assert pair.incomparable == shapes_differ((4, 16), (7,))


def test_a_fused_graph_is_matched_with_the_same_graph_before_it_was_fused() -> None:
    plain = [node("Add_1", "Add", 2), node("Mul_1", "Mul", 2), node("Neg", "Neg"), node("Exp", "Exp")]
    parts = source("Add_1", "input.0", "input.1"), source("Mul_1", "input.2=input.1", "output.0")
    fused = [
        node("Exp", "Exp"),
        node("Add_1Mul_1", "Fused", 3, 1, parts),
        node("Neg", "Neg"),
    ]
    found = plan(plain, fused)
    assert matches(found) == [("Exp", "Exp"), ("Add_1 Mul_1", "Add_1Mul_1"), ("Neg", "Neg")]
    assert "Mul_1:input.1 = Add_1Mul_1:input.2" in pairs(found)


def test_graphs_are_matched_by_what_is_inside_and_names_count_in_their_graph_only() -> None:
    golden = [
        node(name, type_name, parent=graph)
        for graph in ("graph_1", "graph_2")
        for name, type_name in (("mm", "aten.mm"), ("neg", "aten.neg"))
    ] + [node(graph, "Graph", 0, 0, kind=NodeKind.MODULE) for graph in ("graph_1", "graph_2")]
    target = [
        node("MatMul", "MatMul", 1, 1, (source("mm", "input.0", "output.0"),), parent=graph)
        for graph in ("graph_2", "graph_1")
    ] + [node(graph, "Graph", 0, 0, kind=NodeKind.MODULE) for graph in ("graph_2", "graph_1")]
    found = plan(golden, target)
    assert matches(found) == [
        ("graph_2.mm", "graph_2.MatMul"),
        ("graph_1.mm", "graph_1.MatMul"),
        ("graph_2", "graph_2"),
        ("graph_1", "graph_1"),
    ]
    assert found.unmatched_golden == ("graph_1.neg", "graph_2.neg")


def test_two_compiled_graphs_are_aligned_as_any_other() -> None:
    other = [node("MatMul_7", "MatMulV2", 2, 1, (source("mm_7", "output.0"),)), *GE[1:]]
    found = plan(GE, other)
    assert matches(found) == [
        ("MatMul", "MatMul_7"),
        ("AddSigMul", "AddSigMul"),
        ("trans_Cast", "trans_Cast"),
    ]
    assert len(found.pairs) == 3 + 3 + 2
