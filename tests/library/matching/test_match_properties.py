"""What is promised of matching, on models and edits drawn at random."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from library.matching.made_models import Call, Written, edited, models, numbers_of, write, wrong_matches

from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import MatchingRules, Origin, SlicePlan
from firstdrift.model.node import Direction, NodeKind

UNHURRIED = settings(deadline=None, max_examples=60)
FACTORS = st.sampled_from([1.0, None])


def plan_of(golden: Written, target: Written) -> SlicePlan:
    return match_slices(golden.slice, target.slice, MatchingRules())


def require_partition(plan: SlicePlan, golden: Written, target: Written) -> None:
    for side, written, unmatched, left_tensors in (
        ("golden", golden, plan.unmatched_golden, plan.unmatched_golden_tensors),
        ("target", target, plan.unmatched_target, plan.unmatched_target_tensors),
    ):
        matched = [name for match in plan.matches for name in getattr(match, side)]
        assert Counter([*matched, *unmatched]) == Counter(node.name for node in written.nodes)
        tensors = Counter((getattr(pair, f"{side}_node"), getattr(pair, side).label) for pair in plan.pairs)
        tensors.update((left.node, left.record.label) for left in left_tensors)
        nodes = {node.name: node for node in written.nodes}
        assert tensors == Counter((name, record.label) for name in matched for record in nodes[name].tensors)


def require_order(plan: SlicePlan, golden: Written, target: Written) -> None:
    """Require that forward operators of one parent do not cross, in whichever parent their partners are."""
    golden_nodes = {node.name: node for node in golden.nodes}
    target_nodes = {node.name: node for node in target.nodes}
    lists: dict[str | None, list[int]] = {}
    for match in plan.matches:
        node = target_nodes[match.target[0]]
        if node.kind is NodeKind.API and node.direction is Direction.FORWARD:
            lists.setdefault(node.parent, []).append(golden_nodes[match.golden[0]].order)
    assert all(orders == sorted(orders) for orders in lists.values())


@UNHURRIED
@given(models(), FACTORS)
def test_equal_slices_are_matched_node_by_node(calls: tuple[Call, ...], factor: float | None) -> None:
    written = write(calls, factor=factor)
    plan = plan_of(written, written)
    assert [match.golden for match in plan.matches] == [(node.name,) for node in written.nodes]
    assert all(match.golden == match.target and match.origin is Origin.EXACT for match in plan.matches)
    assert all(pair.golden is pair.target and pair.incomparable is None for pair in plan.pairs)
    require_partition(plan, written, written)


@UNHURRIED
@given(models(), FACTORS, st.data())
def test_no_edit_makes_a_node_match_twice_or_get_lost(
    calls: tuple[Call, ...], factor: float | None, data: st.DataObject
) -> None:
    every = numbers_of(calls, modules=True) + numbers_of(calls, modules=False)
    chosen = st.sets(st.sampled_from(every))
    changed = edited(
        calls,
        rename={number: f"other_{number}" for number in data.draw(chosen) if number in every},
        delete=frozenset(data.draw(chosen)),
        insert_after={
            number: Call(data.draw(st.sampled_from(["Tensor.__add__", "Torch.new"])), number=10_000 + number)
            for number in data.draw(chosen)
        },
    )
    golden = write(calls, factor=factor)
    target = write(changed, factor=factor, changed_from=data.draw(st.none() | st.integers(0, 20)))
    for first, second in ((golden, target), (target, golden)):
        plan = plan_of(first, second)
        require_partition(plan, first, second)
        require_order(plan, first, second)


@UNHURRIED
@given(models(), st.data())
def test_renamed_modules_are_found_by_what_they_are(calls: tuple[Call, ...], data: st.DataObject) -> None:
    modules = numbers_of(calls, modules=True)
    renamed = data.draw(st.sets(st.sampled_from(modules))) if modules else set()
    golden = write(calls)
    target = write(edited(calls, rename={number: f"other_{number}" for number in renamed}))
    plan = plan_of(golden, target)
    assert wrong_matches(plan, golden, target) == []
    assert not plan.unmatched_target


@UNHURRIED
@given(models(), st.data(), st.sampled_from([None, 0]), FACTORS)
def test_a_new_operator_shifts_no_other_one(
    calls: tuple[Call, ...], data: st.DataObject, changed_from: int | None, factor: float | None
) -> None:
    after = data.draw(
        st.sets(st.sampled_from(numbers_of(calls, modules=True) + numbers_of(calls, modules=False)))
    )
    golden = write(calls, factor=factor)
    inserted = {number: Call("Torch.new", number=10_000 + number) for number in after}
    target = write(edited(calls, insert_after=inserted), factor=factor, changed_from=changed_from)
    plan = plan_of(golden, target)
    assert wrong_matches(plan, golden, target) == []
    new = {node.name for node in target.nodes if node.path == "Torch.new"}
    assert new <= set(plan.unmatched_target)


@UNHURRIED
@given(models(), st.data())
def test_values_tell_operators_of_one_name_apart(calls: tuple[Call, ...], data: st.DataObject) -> None:
    operators = numbers_of(calls, modules=False)
    if not operators:
        return
    after = data.draw(st.sets(st.sampled_from(operators), max_size=4))
    inserted = {number: Call("Tensor.__add__", number=10_000 + number) for number in after}
    golden, target = write(calls), write(edited(calls, insert_after=inserted))
    for first, second in ((golden, target), (target, golden)):
        assert wrong_matches(plan_of(first, second), first, second) == []
