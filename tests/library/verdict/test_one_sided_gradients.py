"""Gradients that one side alone has: a parameter that was frozen, and what is none."""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from firstdrift.matching.plan import NodeMatch, Origin, SlicePlan, TensorPair, UnmatchedTensor
from firstdrift.model.node import Direction, NodeKind
from firstdrift.model.slice import Coordinates, SliceListing
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.verdict.one_sided_gradients import OneSidedGradient, one_sided_gradients
from firstdrift.verdict.tree import TreeRow

BOTH = ("n",)
NONE: tuple[str, ...] = ()


def row(
    index: int, path: str, type_name: str, golden: Sequence[str] = BOTH, target: Sequence[str] = BOTH
) -> TreeRow:
    match = index if golden and target else None
    names = (tuple(golden), tuple(target))
    place = (index, None, index, 0, index, type_name, NodeKind.MODULE, type_name, Direction.BACKWARD)
    return TreeRow(*place, *names, match, path, None)


ROWS = [
    row(0, "L0.mix", "Linear"),
    row(1, "L0.mix", "parameters_grad"),
    row(2, "L1.mix", "Linear"),
    row(3, "L1.mix", "parameters_grad"),
]
FROZEN = [*ROWS[:1], row(1, "L0.mix", "parameters_grad", target=NONE), *ROWS[2:]]
WEIGHT = TensorRecord(Role.GRADIENT, "weight", "float32", (4, 4))


def plan(
    rows: Sequence[TreeRow], left: Sequence[UnmatchedTensor] = (), at: Coordinates | None = None
) -> SlicePlan:
    listing = SliceListing(at or Coordinates(step=0), Path("made"))
    matches = tuple(NodeMatch(one.golden, one.target, Origin.EXACT) for one in rows)
    return SlicePlan(listing, listing, matches, (), (), (), unmatched_golden_tensors=tuple(left))


def test_what_both_sides_have_left_over_is_not_one_sides_alone() -> None:
    """Two operators by other names give gradients of one weight, as wide in the one as high in the other."""
    wide, high = (replace(WEIGHT, key=key, shape=shape) for key, shape in (("1", (4, 6)), ("0", (6, 4))))
    less = replace(high, shape=(4, 4))
    for other, is_said in ((high, False), (less, True)):
        said = replace(
            plan(ROWS, [UnmatchedTensor(1, "n", wide)]),
            unmatched_target_tensors=(UnmatchedTensor(1, "n", other),),
        )
        assert bool(one_sided_gradients(said, ROWS)) is is_said


def test_of_operators_that_give_other_gradients_at_one_place_nothing_is_said() -> None:
    """Of `linear` that of the bias is first, and of the same in more dimensions that of the product."""
    rows = [replace(row(0, "L0.mix", "Functional.linear"), kind=NodeKind.API)]
    first, weight = (replace(WEIGHT, role=Role.OUTPUT, key=key) for key in ("0", "2"))
    for shape, is_said in (((4, 4), True), ((2, 4, 4), False)):
        pair = TensorPair(0, "n", "n", first, replace(first, shape=shape))
        said = replace(plan(rows, [UnmatchedTensor(0, "n", weight)]), pairs=(pair,))
        assert bool(one_sided_gradients(said, rows)) is is_said


def test_a_gradient_less_in_a_matched_row_is_named() -> None:
    left = [UnmatchedTensor(1, "n", WEIGHT)]
    assert one_sided_gradients(plan(ROWS, left), ROWS) == {1: OneSidedGradient("golden", WEIGHT.label)}


def test_an_input_less_in_a_matched_row_is_no_gradient() -> None:
    left = [UnmatchedTensor(1, "n", replace(WEIGHT, role=Role.INPUT))]
    assert one_sided_gradients(plan(ROWS, left), ROWS) == {}


def test_gradients_of_a_module_that_one_side_alone_has_are_named() -> None:
    assert one_sided_gradients(plan(FROZEN), FROZEN) == {1: OneSidedGradient("golden", "")}


def test_merged_ranks_say_nothing() -> None:
    assert one_sided_gradients(plan(FROZEN, at=Coordinates(step=0, merged=(0, 1))), FROZEN) == {}


def test_renamed_modules_say_nothing() -> None:
    renamed = [*FROZEN, row(4, "L0.mixer", "parameters_grad", golden=NONE)]
    assert one_sided_gradients(plan(renamed), renamed) == {}
    none_matches = [one for one in FROZEN if one.index != 3]
    assert one_sided_gradients(plan(none_matches), none_matches) == {}
