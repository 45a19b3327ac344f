"""What is promised of matches that people make by hand."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from library.matching.made_models import Call, Written, edited, models, numbers_of, write
from messages import ids, ids_of

from firstdrift.dumps.detect import open_dump
from firstdrift.errors import SettingsError
from firstdrift.matching.manual.edits import Edit, EditKind, match, unmatch
from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import MatchingRules, NodeMatch, Origin, SlicePlan
from firstdrift.model.slice import Slice
from firstdrift.parallel.slices import read_slice
from firstdrift.verdict.tree import build_rows
from firstdrift.wording.message import Message

Unpack = Callable[[str], Path]
MODEL = (
    Call("embed", "Embedding", (Call("Functional.embedding", number=1),), number=2),
    Call(
        "feed_forward",
        "FeedForward",
        (
            Call("up", "Linear", (Call("Functional.linear", number=3),), number=4),
            Call("down", "Linear", (Call("Functional.linear", number=5),), number=6),
        ),
        number=7,
    ),
    Call("head", "Linear", (Call("Functional.linear", number=8),), number=9),
)
RENAMED = edited(MODEL, rename={7: "transformed", 4: "rise", 6: "fall"})
BY_NAME = MatchingRules(structure=False)
GOLDEN, TARGET = "Module.feed_forward.FeedForward.{}.0", "Module.transformed.FeedForward.{}.0"


def plan_of(
    golden: Written | Slice, target: Written | Slice, *edits: Edit, rules: MatchingRules = BY_NAME
) -> SlicePlan:
    slices = [side.slice if isinstance(side, Written) else side for side in (golden, target)]
    return match_slices(
        slices[0],
        slices[1],
        MatchingRules(structure=rules.structure, mappings=rules.mappings, edits=edits),
    )


def partners(plan: SlicePlan) -> dict[str, str]:
    """Return the golden partner of each target node; of fused ones the names joined by +."""
    return {"+".join(match.target): "+".join(match.golden) for match in plan.matches}


def match_of(plan: SlicePlan, target: str) -> NodeMatch:
    return next(match for match in plan.matches if target in match.target)


@pytest.fixture(scope="module")
def renamed(unpacked: Unpack) -> tuple[Slice, Slice]:
    """The modules `mlp` of layers 1 and 3 are called `feed_forward` in the target."""
    dumps = [open_dump(unpacked("msprobe/d4_renamed") / side) for side in ("golden", "target")]
    return read_slice(dumps[0], dumps[0].slices[0]), read_slice(dumps[1], dumps[1].slices[0])


def test_a_match_takes_along_what_is_inside_and_the_backward_pass() -> None:
    golden, target = write(MODEL), write(RENAMED)
    before = plan_of(golden, target)
    after = plan_of(golden, target, match(GOLDEN.format("forward"), TARGET.format("forward")))
    added = {name: partner for name, partner in partners(after).items() if name not in partners(before)}
    assert added == {
        TARGET.format("forward"): GOLDEN.format("forward"),
        TARGET.format("backward"): GOLDEN.format("backward"),
        **{
            f"Module.transformed.{new}.Linear.{way}.0": f"Module.feed_forward.{old}.Linear.{way}.0"
            for new, old in (("rise", "up"), ("fall", "down"))
            for way in ("forward", "backward")
        },
        **{
            f"Functional.linear.{at}.{direction}": f"Functional.linear.{at}.{direction}"
            for at in (0, 1)
            for direction in ("forward", "backward")
        },
    }
    said = match_of(after, TARGET.format("forward"))
    assert (said.origin, said.score, said.doubtful) == (Origin.MANUAL, 1.0, False)
    assert ids(said.reasons) == ["reason.by_hand"]
    follower = match_of(after, TARGET.format("backward"))
    assert (follower.origin, follower.reasons) == (
        Origin.MANUAL,
        (Message.of("matching.reason.follows", leader=TARGET.format("forward")),),
    )
    assert after.unmatched_golden == after.unmatched_target == after.notes == ()


@pytest.mark.parametrize("sides", [("golden", "target"), ("target", "golden")])
def test_the_backward_partner_of_a_feed_forward_module_follows_its_forward_match(
    renamed: tuple[Slice, Slice], sides: tuple[str, str]
) -> None:
    slices = dict(zip(("golden", "target"), renamed, strict=True))
    names = {"golden": "Module.model.layers.1.mlp", "target": "Module.model.layers.1.feed_forward"}
    golden, target = (slices[side] for side in sides)
    mlp, feed_forward = (names[side] for side in sides)
    edit = match(f"{mlp}.LlamaMLP.forward.0", f"{feed_forward}.LlamaMLP.forward.0")
    found = partners(plan_of(golden, target, edit))
    assert found[f"{feed_forward}.LlamaMLP.backward.0"] == f"{mlp}.LlamaMLP.backward.0"
    for part in ("gate_proj", "up_proj", "down_proj"):
        for end in ("forward.0", "backward.0", "parameters_grad.0"):
            assert found[f"{feed_forward}.{part}.Linear.{end}"] == f"{mlp}.{part}.Linear.{end}"


def test_without_descendants_only_the_node_and_what_follows_from_it_are_matched(
    renamed: tuple[Slice, Slice],
) -> None:
    golden, target = "Module.model.layers.1.mlp.", "Module.model.layers.1.feed_forward."
    down = "down_proj.Linear.forward.0"
    before = partners(plan_of(*renamed))
    after = partners(plan_of(*renamed, match(golden + down, target + down, descendants=False)))
    assert {name: after[name] for name in after.keys() - before.keys()} == {
        f"{target}down_proj.Linear.{end}": f"{golden}down_proj.Linear.{end}"
        for end in ("forward.0", "backward.0", "parameters_grad.0")
    }


def test_everything_else_stays_as_it_was(renamed: tuple[Slice, Slice]) -> None:
    rules = MatchingRules()
    names = {f"Module.model.layers.{at}.mlp.LlamaMLP.forward.0" for at in (0, 2)}
    before = plan_of(*renamed, rules=rules)
    (one, other) = sorted(names)
    after = plan_of(*renamed, match(one, other), rules=rules)
    inside = "Module.model.layers.{}.mlp."
    for match_before in before.matches:
        forward = [match_before.target[0].startswith(inside.format(at)) for at in (0, 2)]
        if match_before.target[0].startswith("Module.") and not any(forward):
            assert match_before in after.matches
    found = partners(after)
    assert found[other] == one
    assert found[inside.format(2) + "down_proj.Linear.backward.0"] == (
        inside.format(0) + "down_proj.Linear.backward.0"
    )
    assert one in after.unmatched_target
    assert other in after.unmatched_golden


def test_a_match_that_is_taken_apart_leaves_all_of_it_without_partner(renamed: tuple[Slice, Slice]) -> None:
    rules = MatchingRules()
    name = "Module.model.layers.0.mlp.LlamaMLP.forward.0"
    whole = plan_of(*renamed, rules=rules)
    apart = plan_of(*renamed, unmatch(target=name), rules=rules)
    gone = set(partners(whole)) - set(partners(apart))
    assert {name, name.replace(".forward.", ".backward.")} < gone
    assert "Module.model.layers.0.mlp.up_proj.Linear.parameters_grad.0" in gone
    assert gone <= set(apart.unmatched_target)
    assert set(partners(apart)) <= set(partners(whole))
    again = plan_of(*renamed, unmatch(target=name), match(name, name), rules=rules)
    assert partners(again) == partners(whole)


def test_what_was_said_of_a_node_is_not_undone_by_what_another_edit_implies() -> None:
    golden, target = write(MODEL), write(RENAMED)
    up, fall = "Module.feed_forward.up.Linear.forward.0", "Module.transformed.fall.Linear.forward.0"
    crossed, around = match(up, fall), match(GOLDEN.format("forward"), TARGET.format("forward"))
    found = partners(plan_of(golden, target, crossed, around))
    assert found[fall] == up
    assert found[fall.replace("forward", "backward")] == up.replace(".forward.0", ".backward.0")
    assert found[TARGET.format("forward")] == GOLDEN.format("forward")
    apart = plan_of(golden, target, around, unmatch(golden=up), around)
    assert up in apart.unmatched_golden
    assert TARGET.format("forward") in partners(apart)


def test_a_doubtful_match_is_compared_once_a_person_confirms_it() -> None:
    model = (
        Call("a", "Linear", (Call("Torch.add", number=3, shape=(2, 3)),), number=1, shape=(2, 3)),
        Call("b", "Norm", number=2, shape=(4, 5)),
    )
    other = edited(model, rename={1: "z"}, insert_after={1: Call("y", "Linear", number=9, shape=(2, 3))})
    golden, target = write(model, factor=None), write(other, factor=None)
    rules = MatchingRules()
    before = plan_of(golden, target, rules=rules)
    doubtful = [match for match in before.matches if match.doubtful]
    for known in doubtful:
        after = plan_of(golden, target, match(known.golden, known.target), rules=rules)
        sure = match_of(after, known.target[0])
        assert (sure.golden, sure.doubtful, sure.origin) == (known.golden, False, Origin.MANUAL)
    after = plan_of(golden, target, match("Module.a.Linear.forward.0", "Module.y.Linear.forward.0"))
    assert partners(after)["Module.y.Linear.backward.0"] == "Module.a.Linear.backward.0"


def test_several_nodes_are_matched_with_the_one_into_which_they_were_fused(unpacked: Unpack) -> None:
    folder = unpacked("msprobe/qwen2_layermap_stat_mix")
    dumps = [open_dump(folder / side) for side in ("golden", "target")]
    golden, target = (read_slice(dump, dump.slices[0]) for dump in dumps)
    attention = "Module.module.model.layers.0.self_attn.{}.Linear.{}.0"
    fused = "Module.0.module.module.decoder.layers.0.self_attention.linear_qkv.ColumnParallelLinear.{}.0"
    parts = [attention.format(name, "forward") for name in ("q_proj", "k_proj", "v_proj")]
    plan = plan_of(golden, target, match(parts, fused.format("forward")))
    said = match_of(plan, fused.format("forward"))
    assert (said.golden, said.origin) == (tuple(parts), Origin.MANUAL)
    backward = match_of(plan, fused.format("backward"))
    assert backward.golden == tuple(
        attention.format(name, "backward") for name in ("q_proj", "k_proj", "v_proj")
    )
    pairs = [pair for pair in plan.pairs if plan.matches[pair.match] is said and pair.joining]
    assert [pair.target.label for pair in pairs] == [
        "output.0",
        "parameter.weight",
        "parameter.bias",
    ]
    assert all(pair.incomparable is None for pair in pairs)
    apart = plan_of(golden, target, match(parts, fused.format("forward")), unmatch(golden=parts[1]))
    assert {*parts, fused.format("forward")}.isdisjoint(partners(apart))
    assert fused.format("backward") in apart.unmatched_target
    turned = plan_of(target, golden, match(fused.format("forward"), parts))
    assert match_of(turned, parts[2]).target == tuple(parts)


GRADIENTS = "Module.model.layers.1.mlp.up_proj.Linear.parameters_grad.0"


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (match("nothing", "Module.lm_head.Linear.forward.0"), "no_node"),
        (match("Module.lm_head.Linear.forward.0", "nothing"), "no_node"),
        (
            match("Module.lm_head.Linear.forward.0", "Module.lm_head.Linear.backward.0"),
            "other_pass",
        ),
        (match(GRADIENTS, "Module.lm_head.Linear.backward.0"), "only_one_of_gradients"),
        (
            match(
                [
                    "Module.model.norm.LlamaRMSNorm.forward.0",
                    "Module.model.layers.1.LlamaDecoderLayer.forward.0",
                    "Module.model.layers.1.mlp.LlamaMLP.forward.0",
                ],
                "Module.lm_head.Linear.forward.0",
            ),
            "inside",
        ),
        (
            unmatch("Module.lm_head.Linear.forward.0", "Module.model.norm.LlamaRMSNorm.forward.0"),
            "not_matched",
        ),
    ],
)
def test_an_edit_that_makes_no_sense_changes_nothing_and_says_why(
    renamed: tuple[Slice, Slice], edit: Edit, why: str
) -> None:
    before, after = plan_of(*renamed), plan_of(*renamed, edit)
    (note,) = after.notes
    assert edit.is_refused(note)
    assert f"matching.edit.{why}" in ids_of(note)
    assert after.matches == before.matches


def test_a_row_can_not_be_made_to_hang_below_itself() -> None:
    model = (
        Call("a", "Block", (Call("a1", "Linear", number=1),), number=2),
        Call("b", "Block", (Call("b1", "Linear", number=3),), number=4),
        Call("c", "Block", number=5),
        Call("d", "Block", number=6),
    )
    written = write(model, backward=False)
    names = {name: f"Module.{name}.Block.forward.0" for name in "abcd"}
    inner = {at: f"Module.{at}.{at}1.Linear.forward.0" for at in "ab"}
    first = match(names["c"], [inner["a"], names["b"]])
    second = match(names["d"], [inner["b"], names["a"]])
    plan = plan_of(written, written, first, second)
    (note,) = plan.notes
    assert "matching.edit.inside" in ids_of(note)
    rows = build_rows(written.slice, written.slice, plan)
    assert len(rows) == len(plan.matches) + len(plan.unmatched_golden) + len(plan.unmatched_target)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: match([], "a"), "one_side"),
        (lambda: match("a", ()), "one_side"),
        (lambda: match(["a", "b"], ["c", "d"]), "several_with_several"),
        (lambda: match(["a", "a"], "c"), "named_twice"),
        (unmatch, "nothing_named"),
    ],
)
def test_an_edit_that_no_slice_could_make_sense_of_is_refused(make: Callable[[], Edit], why: str) -> None:
    with pytest.raises(SettingsError) as refused:
        make()
    assert refused.value.message.id == f"matching.edit.{why}"


@st.composite
def decisions(draw: st.DrawFn, golden: Sequence[str], target: Sequence[str]) -> Edit:
    kind = draw(st.sampled_from(EditKind))
    several = st.lists(st.sampled_from(golden), min_size=1, max_size=3, unique=True)
    sides = [draw(several), [draw(st.sampled_from(target))]]
    if draw(st.booleans()):
        sides = [
            [draw(st.sampled_from(golden))],
            draw(st.lists(st.sampled_from(target), min_size=1, max_size=3, unique=True)),
        ]
    if kind is EditKind.UNMATCH and draw(st.booleans()):
        sides[draw(st.integers(0, 1))] = []
    return Edit(kind, tuple(sides[0]), tuple(sides[1]), draw(st.booleans()))


@settings(deadline=None, max_examples=50)
@given(models(), st.booleans(), st.booleans(), st.data())
def test_whatever_is_said_no_node_is_lost_or_matched_twice(
    calls: tuple[Call, ...], values: bool, structure: bool, data: st.DataObject
) -> None:
    every = numbers_of(calls, modules=True) + numbers_of(calls, modules=False)
    other = edited(
        calls,
        rename={number: f"other_{number}" for number in data.draw(st.sets(st.sampled_from(every)))},
        delete=frozenset(data.draw(st.sets(st.sampled_from(every), max_size=2))),
    )
    if not numbers_of(other, modules=True) + numbers_of(other, modules=False):
        return
    factor = 1.0 if values else None
    golden, target = write(calls, factor=factor), write(other, factor=factor)
    names = [[node.name for node in side.nodes] for side in (golden, target)]
    edits = data.draw(st.lists(decisions(*names), max_size=6))
    rules = MatchingRules(structure=structure)
    plan = plan_of(golden, target, *edits, rules=rules)
    for side, of_side, left in (
        ("golden", names[0], plan.unmatched_golden),
        ("target", names[1], plan.unmatched_target),
    ):
        matched = [name for match in plan.matches for name in getattr(match, side)]
        assert Counter([*matched, *left]) == Counter(of_side)
    rows = build_rows(golden.slice, target.slice, plan)
    assert len(rows) == len(plan.matches) + len(plan.unmatched_golden) + len(plan.unmatched_target)
    assert [match.target[0] for match in plan.matches] == sorted(
        (match.target[0] for match in plan.matches), key=names[1].index
    )
    last = edits[-1] if edits else None
    refused = last is not None and any(map(last.is_refused, plan.notes))
    if last is not None and last.kind is EditKind.MATCH and not refused:
        assert (last.golden, last.target) in {(match.golden, match.target) for match in plan.matches}
    assert plan == plan_of(golden, target, *edits, rules=rules)
