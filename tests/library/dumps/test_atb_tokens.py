"""Which token a folder of an ATB dump is follows from the operations in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import ids_of, outline

from firstdrift.dumps.atb.tokens import Phase, Run, TokenTable, assign_tokens
from firstdrift.wording.message import Message

P, D, PD = {0, 1}, {2, 3}, {0, 1, 2, 3}
START = 2


def tokens(table: TokenTable) -> list[tuple[int, str, int]]:
    return [(run.folder, run.phase.value, run.token) for run in table.runs if not run.is_warm_up]


def warm_up(table: TokenTable) -> set[int]:
    return {run.folder for run in table.runs if run.is_warm_up}


class TestTheTableOfTheFormat:
    def test_without_a_warm_up_folder_0_holds_tokens_0_and_1(self) -> None:
        table = assign_tokens({0: PD, 1: D, 2: D}, START)
        assert tokens(table) == [(0, "prefill", 0), (0, "decode", 1), (1, "decode", 2), (2, "decode", 3)]
        assert outline(table.reason) == "parts no_warm_up both 0"
        assert not warm_up(table)
        assert not table.problem

    def test_a_warm_up_of_a_prefill_alone_shifts_the_tokens(self) -> None:
        table = assign_tokens({0: P, 1: PD, 2: D, 5: D}, START)
        assert tokens(table) == [(1, "prefill", 0), (1, "decode", 1), (2, "decode", 2), (5, "decode", 5)]
        assert outline(table.reason) == "parts warm_up 1 0 both 1"

    def test_a_warm_up_of_prefill_and_decode_is_told_from_the_prompt_after_it(self) -> None:
        table = assign_tokens({0: PD, 1: PD, 2: D}, START)
        assert tokens(table) == [(1, "prefill", 0), (1, "decode", 1), (2, "decode", 2)]
        assert warm_up(table) == {0}
        assert [run.token for run in table.runs if run.is_warm_up] == [0, 1]

    def test_of_one_model_the_number_of_a_folder_is_its_token(self) -> None:
        table = assign_tokens({0: P, 3: P}, None)
        assert table.runs == (Run(0, Phase.ALL, 0), Run(3, Phase.ALL, 3))
        assert not table.problem


class TestIncompleteDumps:
    def test_decodes_alone_are_numbered_by_folder_and_that_is_a_problem(self) -> None:
        table = assign_tokens({4: D, 5: D}, START)
        assert tokens(table) == [(4, "all", 4), (5, "all", 5)]
        assert ids_of(table.problem) == ("dumps.atb.no_prefill",)

    def test_a_dump_that_begins_amid_a_prompt_is_not_taken_for_a_warm_up(self) -> None:
        table = assign_tokens({4: D, 5: PD}, START)
        assert not warm_up(table)
        assert table.problem

    def test_a_prefill_alone_may_be_a_warm_up(self) -> None:
        table = assign_tokens({0: P, 1: P}, START)
        assert tokens(table) == [(1, "prefill", 0)]
        assert table.problem == Message.of("dumps.atb.no_decode", folder=1)

    def test_folders_without_operations_are_no_runs(self) -> None:
        assert tokens(assign_tokens({0: PD, 1: set()}, START)) == [(0, "prefill", 0), (0, "decode", 1)]
        assert assign_tokens({}, START).runs == ()


def test_prefill_and_decode_in_folders_of_their_own_are_counted_one_by_one() -> None:
    table = assign_tokens({0: P, 1: P, 2: D, 3: D}, START)
    assert tokens(table) == [(1, "prefill", 0), (2, "decode", 1), (3, "decode", 2)]
    assert warm_up(table) == {0}


def test_tokens_go_on_counting_through_further_prompts() -> None:
    table = assign_tokens({0: P, 1: PD, 2: D, 3: PD, 4: D}, START)
    assert tokens(table) == [
        *((1, "prefill", 0), (1, "decode", 1), (2, "decode", 2)),
        *((3, "prefill", 3), (3, "decode", 4), (4, "decode", 5)),
    ]
    assert outline(table.reason).endswith("further_prompts 3")


@given(
    orders=st.dictionaries(st.integers(0, 40), st.sets(st.integers(0, 9), max_size=4), max_size=8),
    start=st.none() | st.integers(0, 10),
)
def test_every_folder_with_operations_has_a_token_and_no_token_is_given_twice(
    orders: dict[int, set[int]], start: int | None
) -> None:
    table = assign_tokens(orders, start)
    assert {run.folder for run in table.runs} == {folder for folder, found in orders.items() if found}
    given_tokens = [run.token for run in table.runs if not run.is_warm_up]
    assert given_tokens == sorted(set(given_tokens))
    assert all(token >= 0 for token in given_tokens)


@pytest.mark.parametrize("start", [None, START])
def test_the_order_of_folders_is_that_of_their_numbers(start: int | None) -> None:
    assert [run.folder for run in assign_tokens({10: D, 9: PD, 11: D}, start).runs][-1] == 11
