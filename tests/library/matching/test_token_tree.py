"""Generated tokens go on with the sequence that was given before them."""

from itertools import chain
from time import process_time

import pytest

from firstdrift.matching.tokens.given import Given, Run
from firstdrift.matching.tokens.tree import TokenTree

PROMPT = (5.0, 7.0)


def given(*passes: list[tuple[tuple[float, ...], int | None, int | None]]) -> Given:
    """Make what a run was given of ids, start and slot of the runs of each pass."""
    rows = chain.from_iterable(((part, *one) for one in each) for part, each in enumerate(passes))
    runs = tuple(Run(at, ids, start, slot, part) for at, (part, ids, start, slot) in enumerate(rows))
    return Given((len(runs),), runs)


@pytest.mark.parametrize("start", [None, 2])
def test_each_sequence_of_one_prompt_goes_on_by_itself(start: int | None) -> None:
    side = given([(PROMPT, 0, 0), (PROMPT, 0, 1)], [((3.0,), start, 0)], [((4.0,), start, 1)])
    tree = TokenTree()
    (nodes,) = tree.place([side])
    prompt, _, first, second = nodes
    assert prompt
    assert [tree.parents[one[0]] for one in (first, second) if one] == [prompt[-1]] * 2


def test_a_sequence_that_went_on_is_not_taken_for_one_that_waits() -> None:
    waits, goes_on = (1.0, 2.0), (3.0, 4.0)
    side = given([(waits, 0, None), (goes_on, 0, None)], [((4.0, 5.0), 2, None)])
    other = given([(goes_on, 0, None)], [((4.0, 5.0), 2, None)])
    last = given([(waits, 0, None), (goes_on, 0, None)], [((4.0, 5.0), 2, None)], [((8.0,), 2, None)])
    tree = TokenTree()
    *_, nodes = tree.place([side, other, last])
    assert nodes[0]
    assert nodes[3]
    assert tree.parents[nodes[3][0]] == nodes[0][-1]


def test_many_generated_tokens_of_many_sequences_take_no_time() -> None:
    sequences = range(128)
    prompts = [((float(one), 1.0, 2.0), 0, one) for one in sequences]
    steps = [[((float(at * one % 997),), 3 + at, one) for one in sequences] for at in range(256)]
    side = given(prompts, *steps)
    started = process_time()
    placed = TokenTree().place([side, side])
    assert process_time() - started < 10
    assert all(nodes is not None for nodes in placed[0])
