"""What is promised of pairing the slices of two dumps."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import ids, outline, place

from firstdrift.errors import SettingsError
from firstdrift.matching.plan import MatchingRules, SlicePairing
from firstdrift.matching.slice_selection import spelled
from firstdrift.matching.slices import pair_slices
from firstdrift.model.slice import Coordinates, Dump, Layout, SliceListing
from firstdrift.wording.message import Message


def dump(name: str, *coordinates: Coordinates) -> Dump:
    slices = [SliceListing(at, Path(name) / str(number)) for number, at in enumerate(coordinates)]
    return Dump(Path(name), "made", (), tuple(slices))


def tokens(*numbers: int, rank: int | None = None) -> list[Coordinates]:
    return [Coordinates(rank=rank, token=number) for number in numbers]


def ranks(number: int) -> list[Coordinates]:
    return [Coordinates(rank=rank) for rank in range(number)]


def described(pairing: SlicePairing) -> list[tuple[str, str]]:
    return [(place(one.coordinates), place(other.coordinates)) for one, other in pairing.pairs]


def pair(golden: list[Coordinates], target: list[Coordinates], **rules: int | Layout) -> SlicePairing:
    return pair_slices(dump("golden", *golden), dump("target", *target), MatchingRules(**rules))


def test_slices_of_the_same_coordinates_are_paired_and_the_rest_is_listed() -> None:
    pairing = pair(tokens(0, 1, 2, rank=0), tokens(1, 2, 3, rank=0))
    assert described(pairing) == [
        ("rank 0, token 1", "rank 0, token 1"),
        ("rank 0, token 2", "rank 0, token 2"),
    ]
    assert pairing.unmatched_golden == (Coordinates(rank=0, token=0),)
    assert pairing.unmatched_target == (Coordinates(rank=0, token=3),)
    assert pairing.notes == ()


def test_a_process_without_rank_is_the_only_rank_of_the_other_side() -> None:
    pairing = pair(tokens(0, 1), tokens(0, 1, rank=0))
    assert described(pairing) == [("token 0", "rank 0, token 0"), ("token 1", "rank 0, token 1")]
    assert ids(pairing.notes) == ["note.untold_by_golden"]


def test_the_only_token_of_each_side_is_the_same_token() -> None:
    pairing = pair(tokens(0), tokens(4))
    assert described(pairing) == [("token 0", "token 4")]
    assert ids(pairing.notes) == ["note.assumed_same"]


def test_a_dump_without_ranks_is_compared_with_all_ranks_of_the_other_merged() -> None:
    pairing = pair([Coordinates(step=0)], [Coordinates(step=0, rank=0), Coordinates(step=0, rank=1)])
    assert described(pairing) == [("step 0", "step 0, rank 0+1")]
    assert pairing.unmatched_target == ()
    (note,) = pairing.notes
    assert (note.id, note.arguments["ranks"]) == ("matching.note.merged", "0+1")


def test_choosing_a_rank_makes_it_the_only_one() -> None:
    pairing = pair([Coordinates(step=0)], [Coordinates(step=0, rank=0), Coordinates(step=0, rank=1)], rank=1)
    assert described(pairing) == [("step 0", "step 0, rank 1")]
    assert pairing.unmatched_target == ()


def test_unequal_numbers_of_ranks_are_merged_on_both_sides() -> None:
    pairing = pair(ranks(2), ranks(4))
    assert described(pairing) == [("rank 0+1", "rank 0+1+2+3")]
    assert pairing.unmatched_golden == pairing.unmatched_target == ()


def test_equal_numbers_of_ranks_are_paired_one_by_one() -> None:
    assert described(pair(ranks(2), ranks(2))) == [("rank 0", "rank 0"), ("rank 1", "rank 1")]


def test_each_token_of_merged_ranks_is_one_slice() -> None:
    pairing = pair(tokens(0, 1), [*tokens(0, 1, rank=0), *tokens(0, 1, rank=1)])
    assert described(pairing) == [("token 0", "rank 0+1, token 0"), ("token 1", "rank 0+1, token 1")]
    assert [len(other.parts) for _, other in pairing.pairs] == [2, 2]


def test_copies_of_a_model_are_paired_in_order() -> None:
    pairing = pair(ranks(2), ranks(4), golden_layout=Layout(), target_layout=Layout(tensor=2))
    assert described(pairing) == [("rank 0", "rank 0+1"), ("rank 1", "rank 2+3")]


def test_shards_are_numbered_before_copies_and_copies_before_stages() -> None:
    layout = Layout(tensor=2, pipeline=2)
    pairing = pair(ranks(2), ranks(8), golden_layout=Layout(), target_layout=layout)
    assert described(pairing) == [("rank 0", "rank 0+1+4+5"), ("rank 1", "rank 2+3+6+7")]


def test_ranks_are_merged_as_said_though_both_sides_have_as_many() -> None:
    layouts = {"golden_layout": Layout(tensor=2), "target_layout": Layout(pipeline=2)}
    assert described(pair(ranks(2), ranks(2), **layouts)) == [("rank 0+1", "rank 0+1")]


def test_a_layout_that_does_not_fit_the_ranks_is_said_and_merges_nothing() -> None:
    pairing = pair(ranks(1), ranks(3), golden_layout=Layout(), target_layout=Layout(tensor=2))
    assert described(pairing) == [("rank 0", "rank 0")]
    assert len(pairing.unmatched_target) == 2
    (note,) = pairing.notes
    assert (note.id, note.arguments["ranks"], note.arguments["size"]) == ("matching.note.no_multiple", 3, 2)


def test_a_token_offset_shifts_the_target() -> None:
    pairing = pair(tokens(0, 1, 2), tokens(0, 1, 2), token_offset=1)
    assert described(pairing) == [("token 0", "token 1"), ("token 1", "token 2")]
    assert pairing.unmatched_golden == (Coordinates(token=2),)
    assert pairing.unmatched_target == (Coordinates(token=0),)


def test_a_token_offset_is_kept_where_each_side_has_one_token() -> None:
    assert pair(tokens(0), tokens(0), token_offset=1).pairs == ()
    assert described(pair(tokens(0), tokens(1), token_offset=1)) == [("token 0", "token 1")]


def test_a_chosen_token_is_counted_on_the_golden_side() -> None:
    pairing = pair(tokens(0, 1, 2), tokens(0, 1, 2), token=1, token_offset=1)
    assert described(pairing) == [("token 1", "token 2")]
    assert pairing.unmatched_golden == ()


def test_what_was_assumed_is_not_said_where_nothing_came_of_it() -> None:
    pairing = pair(tokens(0, 1), [Coordinates(step=0, rank=0)])
    assert pairing.pairs == ()
    (note,) = pairing.notes
    assert (note.id, note.arguments["numbers"]) == ("matching.note.ambiguous", "0\u20131")


RANKS = [Coordinates(step=0, rank=0), Coordinates(step=1, rank=1)]


@pytest.mark.parametrize(
    ("golden", "target", "rules", "said"),
    [
        (tokens(*range(6)), tokens(*range(6)), {"token": 99}, "in_neither token 99 several token 0\u20135"),
        (tokens(0), tokens(0), {"token": 99}, "in_neither token 99 token 0"),
        (
            tokens(0, 1),
            tokens(0, 2, 3),
            {"token": 9},
            "in_neither_of_two token 9 several token 0\u20131 several token 0, 2\u20133",
        ),
        (tokens(0, 1), tokens(0), {"token": 1}, "not_in_target token 1 token 0"),
        (tokens(0), tokens(0, 1), {"token": 1}, "not_in_golden token 1 token 0"),
        (
            tokens(0, 1),
            tokens(0, 1),
            {"token": 1, "token_offset": 1},
            "shifted token 1 token 2 several token 0\u20131 1",
        ),
        (tokens(0), [Coordinates(rank=0)], {"token": 3}, "not_in_golden token 3 token 0"),
        ([Coordinates(step=0)], [Coordinates(step=0)], {"rank": 1}, "untold rank 1 rank"),
        (RANKS, RANKS, {"step": 0, "rank": 1}, "no_slice golden coordinates step 0 rank 1"),
    ],
)
def test_a_choice_that_no_slice_fits_is_refused_and_says_what_there_is(
    golden: list[Coordinates], target: list[Coordinates], rules: dict[str, int], said: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        pair(golden, target, **rules)
    assert outline(refused.value.message) == said


@given(st.sets(st.integers(0, 40), min_size=1))
def test_runs_of_numbers_stand_for_exactly_these_numbers(numbers: set[int]) -> None:
    runs = spelled(numbers).removesuffix(", \u2026").split(", ")
    ends = [[int(end) for end in run.split("\u2013")] for run in runs]
    read = {number for run in ends for number in range(run[0], run[-1] + 1)}
    assert read == {number for number in numbers if number <= max(read)}


def test_a_dump_against_itself_is_noted_whatever_its_path_is_called(tmp_path: Path) -> None:
    (tmp_path / "golden").mkdir()
    (tmp_path / "link").symlink_to("golden")
    dumps = [Dump(tmp_path / name, "made", (), ()) for name in ("golden", "link")]
    assert pair_slices(*dumps, MatchingRules()).notes == (Message.of("matching.note.same_dump"),)


def test_several_slices_of_the_same_coordinates_are_paired_in_order() -> None:
    pairing = pair([Coordinates(step=0)] * 2, [Coordinates(step=0)] * 3)
    assert [one.directory.name + other.directory.name for one, other in pairing.pairs] == ["00", "11"]
    assert len(pairing.unmatched_target) == 1
    assert ids(pairing.notes) == ["note.paired_in_order"]


def test_a_dump_against_itself_with_an_offset_lists_what_is_left_over() -> None:
    same = dump("same", *tokens(0, 1))
    pairing = pair_slices(same, same, MatchingRules(token_offset=1))
    assert pairing.unmatched_golden == (Coordinates(token=1),)
    assert pairing.unmatched_target == (Coordinates(token=0),)


def test_pairs_come_in_the_order_in_which_the_golden_slices_ran() -> None:
    shuffled = [Coordinates(step=1, rank=0), Coordinates(step=0, rank=1), Coordinates(step=0, rank=0)]
    assert [one for one, _ in described(pair(shuffled, shuffled))] == [
        "step 0, rank 0",
        "step 0, rank 1",
        "step 1, rank 0",
    ]
