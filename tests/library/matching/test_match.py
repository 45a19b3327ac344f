"""What is promised of matching, on small models made for the purpose."""

from pathlib import Path

import pytest
from library.matching.made_models import Call, Written, edited, tensor, write, wrong_matches
from messages import ids
from msgspec.structs import replace

from firstdrift.matching.match import match_slices
from firstdrift.matching.pairing import SAME_PLACE
from firstdrift.matching.plan import MatchingRules, NodeMatch, Origin, SlicePlan
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import Role
from firstdrift.wording.message import Message

ADD, MUL, LINEAR = "Tensor.__add__", "Tensor.__mul__", "Functional.linear"


def model(*layers: tuple[Call, ...]) -> tuple[Call, ...]:
    numbers = iter(range(1000))

    def numbered(call: Call) -> Call:
        number = next(numbers)
        return replace(call, number=number, children=tuple(map(numbered, call.children)))

    return tuple(numbered(Call(f"layers.{at}", "Layer", layer)) for at, layer in enumerate(layers))


def layer() -> tuple[Call, ...]:
    return (
        Call("norm", "Norm", (Call(MUL, shape=(64,)), Call(ADD))),
        Call("mlp", "MLP", (Call("up", "Linear", (Call(LINEAR),)), Call("down", "Linear", (Call(LINEAR),)))),
        Call(ADD),
    )


def matched(golden: Written, target: Written, **rules: bool) -> SlicePlan:
    return match_slices(golden.slice, target.slice, MatchingRules(**rules))


def match_of(plan: SlicePlan, target: str) -> NodeMatch:
    return next(match for match in plan.matches if match.target == (target,))


def test_a_renamed_module_is_found_and_its_backward_node_follows_it() -> None:
    calls = model(layer(), layer())
    golden, target = write(calls), write(edited(calls, rename={4: "feed_forward"}), changed_from=0)
    plan = matched(golden, target)
    assert wrong_matches(plan, golden, target) == []
    assert plan.unmatched_golden == plan.unmatched_target == ()
    forward = match_of(plan, "Module.layers.0.feed_forward.MLP.forward.0")
    assert forward.golden == ("Module.layers.0.mlp.MLP.forward.0",)
    assert forward.origin is Origin.STRUCTURE
    assert not forward.doubtful
    assert {"reason.same_class", "reason.same_contents", "reason.same_shapes.output"} <= set(
        ids(forward.reasons)
    )
    backward = match_of(plan, "Module.layers.0.feed_forward.MLP.backward.0")
    leader = "Module.layers.0.feed_forward.MLP.forward.0"
    assert backward.reasons == (Message.of("matching.reason.follows", leader=leader),)


def test_an_operator_whose_call_number_shifted_is_the_same_operator() -> None:
    calls = model(layer(), layer())
    golden = write(calls)
    target = write(edited(calls, insert_after={2: Call(LINEAR, number=900)}), changed_from=0)
    plan = matched(golden, target)
    assert wrong_matches(plan, golden, target) == []
    assert plan.unmatched_target == ("Functional.linear.0.forward", "Functional.linear.0.backward")
    shifted = match_of(plan, "Functional.linear.1.forward")
    assert (shifted.golden, shifted.origin) == (("Functional.linear.0.forward",), Origin.EXACT)
    assert shifted.reasons == (*SAME_PLACE, Message.of("matching.reason.other_call", golden=0, target=1))


def test_a_module_of_another_class_at_the_same_path_is_the_same_module() -> None:
    golden, target = write((Call("attn", "Eager"),)), write((Call("attn", "Fused"),))
    found = matched(golden, target).matches[0]
    assert found.origin is Origin.EXACT
    assert Message.of("matching.reason.other_class", golden="Eager", target="Fused") in found.reasons


def test_a_module_around_everything_hides_nothing() -> None:
    calls = model(layer(), layer())
    golden = write(calls)
    wrapper = Call("module", "Wrapper", calls, number=990)
    for first, second in ((golden, write((wrapper,))), (write((wrapper,)), golden)):
        plan = matched(first, second)
        assert wrong_matches(plan, first, second) == []
        left = {*plan.unmatched_golden, *plan.unmatched_target}
        assert left == {"Module.module.Wrapper.forward.0", "Module.module.Wrapper.backward.0"}


def test_modules_of_the_same_path_are_matched_though_they_changed_places() -> None:
    modules = Call("q", "Linear", number=1), Call("k", "Linear", number=2)
    golden, target = write(modules), write(modules[::-1])
    plan = matched(golden, target)
    assert wrong_matches(plan, golden, target) == []
    assert plan.unmatched_target == ()


def test_calls_of_one_module_are_matched_by_their_number() -> None:
    steps = tuple(Call("model", "Model", (Call(LINEAR, number=10 * at),), number=at) for at in range(1, 4))
    golden, target = write(steps), write(steps[:2])
    plan = matched(golden, target)
    assert wrong_matches(plan, golden, target) == []
    assert plan.unmatched_golden[0] == "Functional.linear.2.forward"
    assert len(plan.unmatched_golden) == 4


def test_operators_that_only_one_side_has_stay_alone() -> None:
    eager = Call("attn", "Attention", (Call("Torch.matmul", number=1), Call("Functional.softmax", number=2)))
    fused = Call("attn", "Attention", (Call("Functional.attention", number=3),))
    plan = matched(write((eager,)), write((fused,)))
    assert len(plan.matches) == 2
    assert len(plan.unmatched_golden) == 4


def test_operators_of_other_names_and_the_same_output_share_it() -> None:
    eager = Call("attn", "Attention", (Call("Torch.matmul", number=1), Call("Functional.softmax", number=2)))
    fused = Call("attn", "Attention", (Call("Functional.attention", number=2),))
    plan = matched(write((eager,)), write((fused,)))
    twin = match_of(plan, "Functional.attention.0.forward")
    assert (twin.golden, twin.origin, twin.doubtful) == (
        ("Functional.softmax.0.forward",),
        Origin.STRUCTURE,
        False,
    )
    assert [pair.golden.label for pair in plan.pairs if pair.target_node == twin.target[0]] == ["output.0"]


def test_which_of_two_like_operators_is_new_stays_doubtful_without_values() -> None:
    golden = write((Call("mlp", "MLP", (Call(MUL, number=1),)),), factor=None)
    target = write((Call("mlp", "MLP", (Call(MUL, number=1), Call(MUL, number=2))),), factor=None)
    plan = matched(golden, target)
    doubtful = match_of(plan, "Tensor.__mul__.0.forward")
    assert doubtful.doubtful
    assert "reason.rival" in ids(doubtful.reasons)
    assert not any(pair.match == plan.matches.index(doubtful) for pair in plan.pairs)
    assert [left.record.label for left in plan.unmatched_golden_tensors[:2]] == ["input.0", "output.0"]


def test_a_module_replaced_by_another_kind_of_module_is_not_compared() -> None:
    golden = write((Call("drop", "Dropout", (Call("Functional.dropout", number=2),), number=1),))
    target = write((Call("norm", "LayerNorm", (Call("Functional.layer_norm", number=3),), number=4),))
    assert all(match.doubtful for match in matched(golden, target).matches)


def test_with_structure_off_only_names_count() -> None:
    calls = model(layer())
    golden = write(calls)
    target = write(edited(calls, rename={4: "feed_forward"}, insert_after={2: Call(LINEAR, number=900)}))
    plan = matched(golden, target, structure=False)
    assert {match.origin for match in plan.matches} == {Origin.EXACT}
    assert wrong_matches(plan, golden, target) == []
    assert "Module.layers.0.mlp.MLP.forward.0" in plan.unmatched_golden


def test_with_exact_off_everything_is_weighed() -> None:
    written = write(model(layer(), layer()))
    plan = matched(written, written, exact=False)
    assert {match.origin for match in plan.matches} == {Origin.STRUCTURE}
    assert all(match.golden == match.target for match in plan.matches)


def test_with_all_rules_off_nothing_is_matched() -> None:
    written = write(model(layer()))
    plan = matched(written, written, exact=False, structure=False)
    assert plan.matches == ()
    assert len(plan.unmatched_golden) == len(written.nodes)


def test_fuzzy_matching_ignores_call_numbers_and_keeps_order() -> None:
    calls = (Call("block", "Block", (Call(MUL, number=2),), number=1), Call("block", "Block", number=3))
    plan = matched(write(calls), write(calls[1:]), fuzzy=True, exact=False, structure=False)
    assert [match.golden for match in plan.matches][:1] == [("Module.block.Block.forward.0",)]
    assert {match.origin for match in plan.matches} == {Origin.FUZZY}


def single(name: str, direction: Direction, parent: str | None, call: int = 0) -> Node:
    path = name.split(".")[1]
    tensors = tensor(Role.INPUT, (2, 8), 3.0 + len(name)), tensor(Role.OUTPUT, (2, 8), 5.0 + len(name))
    return Node(name, path, NodeKind.MODULE, "Block", direction, call, 0, parent, tensors)


def slice_of(*nodes: Node) -> Slice:
    ordered = tuple(replace(node, order=at) for at, node in enumerate(nodes))
    return Slice(SliceListing(Coordinates(), Path("made")), ordered)


FORWARD = single("Module.a.Block.forward.0", Direction.FORWARD, None)
BACKWARD = single("Module.a.Block.backward.0", Direction.BACKWARD, None)
RECOMPUTED = single("Module.a.Block.forward.1", Direction.FORWARD, "Module.a.Block.backward.1", 1)
BACKWARD_OF_RECOMPUTED = single("Module.a.Block.backward.1", Direction.BACKWARD, None, 1)


def test_a_recomputed_module_does_not_take_the_place_of_the_first_run() -> None:
    recomputed = replace(RECOMPUTED, parent=BACKWARD.name)
    plan = match_slices(slice_of(FORWARD, BACKWARD), slice_of(FORWARD, recomputed, BACKWARD), MatchingRules())
    assert [match.golden for match in plan.matches] == [(FORWARD.name,), (BACKWARD.name,)]
    assert plan.unmatched_target == (recomputed.name,)


def test_the_backward_pass_through_a_recomputed_module_is_that_of_the_first_run() -> None:
    golden = slice_of(FORWARD, BACKWARD)
    target = slice_of(FORWARD, RECOMPUTED, BACKWARD_OF_RECOMPUTED)
    plan = match_slices(golden, target, MatchingRules())
    assert match_of(plan, BACKWARD_OF_RECOMPUTED.name).golden == (BACKWARD.name,)
    assert plan.unmatched_target == (RECOMPUTED.name,)


def test_where_both_sides_recompute_everything_is_matched() -> None:
    both = slice_of(FORWARD, RECOMPUTED, BACKWARD_OF_RECOMPUTED)
    plan = match_slices(both, both, MatchingRules())
    assert [match.golden for match in plan.matches] == [(node.name,) for node in both.nodes]


def test_a_backward_pass_recorded_alone_is_matched_by_name() -> None:
    plan = match_slices(slice_of(BACKWARD), slice_of(BACKWARD), MatchingRules())
    assert [match.golden for match in plan.matches] == [(BACKWARD.name,)]


def gradients(path: str) -> Node:
    return Node(
        name=f"Module.{path}.Block.parameters_grad.0",
        path=path,
        kind=NodeKind.MODULE,
        type_name="parameters_grad",
        direction=Direction.BACKWARD,
        call=0,
        order=0,
        parent=f"Module.{path}.Block.backward.0",
        tensors=(tensor(Role.GRADIENT, (8, 8), 2.0, "weight"),),
    )


def test_gradients_follow_their_renamed_module() -> None:
    other = replace(FORWARD, name="Module.b.Block.forward.0", path="b")
    other_back = replace(BACKWARD, name="Module.b.Block.backward.0", path="b")
    plan = match_slices(
        slice_of(FORWARD, gradients("a"), BACKWARD),
        slice_of(other, gradients("b"), other_back),
        MatchingRules(),
    )
    assert match_of(plan, "Module.b.Block.parameters_grad.0").golden == ("Module.a.Block.parameters_grad.0",)
    assert plan.unmatched_golden == ()


def test_gradients_recorded_alone_are_matched_by_path() -> None:
    plan = match_slices(slice_of(gradients("a")), slice_of(gradients("a")), MatchingRules())
    assert len(plan.matches) == 1


@pytest.mark.parametrize("parent", ["Module.a.Block.forward.0", "Module.b.Block.forward.0", "nowhere"])
def test_a_node_in_a_circle_or_without_its_parent_is_not_lost(parent: str) -> None:
    circle = slice_of(
        replace(FORWARD, parent=parent),
        replace(FORWARD, name="Module.b.Block.forward.0", path="b", parent=FORWARD.name),
    )
    plan = match_slices(circle, circle, MatchingRules())
    assert [match.golden for match in plan.matches] == [(node.name,) for node in circle.nodes]


def test_a_tree_as_deep_as_it_has_nodes_is_matched() -> None:
    depth = 1500
    names = [f"Module.m{at}.Block.forward.0" for at in range(depth)]
    nodes = [
        single(name, Direction.FORWARD, names[at + 1] if at + 1 < depth else None)
        for at, name in enumerate(names)
    ]
    other = [replace(node, path=f"x{node.path}", name=node.name.replace(".m", ".xm")) for node in nodes]
    other = [replace(node, parent=node.parent and node.parent.replace(".m", ".xm")) for node in other]
    plan = match_slices(slice_of(*nodes), slice_of(*other), MatchingRules())
    assert len(plan.matches) + len(plan.unmatched_golden) == depth


def test_an_empty_slice_leaves_everything_over() -> None:
    plan = match_slices(slice_of(), slice_of(FORWARD), MatchingRules())
    assert plan.matches == ()
    assert plan.unmatched_target == (FORWARD.name,)


@pytest.mark.parametrize("factor", [1.0, None])
def test_more_than_ten_thousand_operators_without_modules_are_aligned(factor: float | None) -> None:
    names = [ADD, MUL, LINEAR, "Torch.matmul", "Tensor.pow", MUL, "Torch.rsqrt"]
    calls = tuple(Call(names[at % 7], number=at, shape=(2, 16 + at % 5)) for at in range(12_000))
    new = {at: Call(MUL, number=100_000 + at, shape=(2, 99)) for at in range(500, 12_000, 997)}
    golden = write(calls, factor=factor, backward=False)
    target = write(edited(calls, insert_after=new), factor=factor, changed_from=4_000, backward=False)
    plan = matched(golden, target)
    assert wrong_matches(plan, golden, target) == []
    assert len(plan.unmatched_target) == len(new)
    assert plan.unmatched_golden == ()


@pytest.mark.parametrize("at", [50, 151, 250])
@pytest.mark.parametrize("before", [0, 1], ids=["after", "before"])
def test_in_a_long_run_values_tell_an_operator_from_one_inserted_beside_it(at: int, before: int) -> None:
    names = [ADD, MUL, LINEAR, "Torch.matmul", "Tensor.pow", MUL, "Torch.rsqrt"]
    calls = tuple(Call(names[at % 7], number=at, shape=(2, 16 + at % 5)) for at in range(300))
    inserted = edited(calls, insert_after={at - before: replace(calls[at], number=900)})
    golden, target = write(calls, backward=False), write(inserted, factor=1.01, backward=False)
    plan = matched(golden, target)
    assert wrong_matches(plan, golden, target) == []
    assert plan.unmatched_golden == ()
    assert not any(match.doubtful for match in plan.matches)
