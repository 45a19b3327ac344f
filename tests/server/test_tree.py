from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import like, refuses
from msgspec.structs import replace
from starlette.datastructures import QueryParams

from firstdrift.catalogue.comparisons.outline import CLASSES, DIRECTIONS, KINDS, VERDICTS, WAYS, Outline
from firstdrift.errors import NotInCatalogueError, SettingsError
from firstdrift.verdict.judgement import NodeClass, Verdict
from firstdrift.verdict.shown_classes import BY_RULE, OF_CLASS, SHOWN_ALONE
from firstdrift_server.tree.state import TreeState, read_rows, write_rows
from firstdrift_server.tree.view import CHUNK, CHUNKS, MOST_ROWS, pieces_asked_for
from firstdrift_server.tree.visible import (
    ROWS_OF_A_SCREEN,
    Stop,
    TreeView,
    close_all,
    facets,
    next_stop,
    open_below,
    select,
    step_to,
    toggle,
    view_tree,
)

STEPS: dict[str, Callable[[TreeView, int], TreeState]] = {
    "toggle": toggle,
    "select": select,
    "open below": open_below,
    "open all": lambda view, _: open_below(view, None),
    "close all": lambda view, _: close_all(view),
}


@st.composite
def outlines(draw: st.DrawFn, most: int = 30) -> Outline:
    """Draw any tree of up to `most` rows, with any verdicts."""
    size = draw(st.integers(1, most))
    parent = [-1]
    for row in range(1, size):
        chain = [row - 1]  # in pre-order, a row hangs below the one before it or below what contains that
        while chain[-1] >= 0:
            chain.append(parent[chain[-1]])
        parent.append(draw(st.sampled_from(chain)))
    last = list(range(size))
    for row in reversed(range(size)):
        if parent[row] >= 0:
            last[parent[row]] = max(last[parent[row]], last[row])
    codes = {
        name: np.array(draw(st.lists(st.integers(0, len(words) - 1), min_size=size, max_size=size)), np.int8)
        for name, words in (
            ("verdict", VERDICTS),
            ("node_class", CLASSES),
            ("kind", KINDS),
            ("direction", DIRECTIONS),
        )
    }
    flags = {
        name: np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)))
        for name in ("bad", "origin", "unmatched", "incomparable", "own")
    }
    order = np.array(draw(st.permutations(range(size))), np.int32)
    return Outline(
        np.array(parent, np.int32),
        np.array(last, np.int32),
        order,
        **codes,
        **flags,
        output_error=np.zeros(size),
        amplification=np.zeros(size),
        overflow=np.full(size, -1, np.int8),
        way=np.full(size, -1, np.int8),
    )


def ancestors_of(outline: Outline, row: int) -> list[int]:
    above = []
    while outline.parent[row] >= 0:
        row = int(outline.parent[row])
        above.append(row)
    return above


def seen_by_definition(view: TreeView) -> list[int]:
    """A row is seen if it or something below it matches, and everything that contains it is open."""
    outline = view.outline
    return [
        row
        for row in range(len(outline))
        if view.matching[row : outline.last[row] + 1].any()
        and all(view.opened[above] for above in ancestors_of(outline, row))
    ]


@given(outline=outlines(), data=st.data())
def test_a_row_is_seen_if_it_matches_and_everything_around_it_is_open(
    outline: Outline, data: st.DataObject
) -> None:
    rows = st.integers(0, len(outline) - 1)
    chosen = data.draw(
        st.lists(
            st.sampled_from([("verdict", frozenset({"error", "unmatched"})), ("kind", frozenset({"api"}))]),
            max_size=1,
        )
    )
    row = data.draw(st.none() | rows)
    found = data.draw(
        st.none() | st.lists(rows, unique=True).map(lambda some: np.array(sorted(some), np.int32))
    )
    view = view_tree(
        outline, TreeState(row=row, chosen=tuple(chosen), text="x" if found is not None else ""), found
    )
    for _ in range(data.draw(st.integers(0, 4))):
        assert view.visible.tolist() == seen_by_definition(view)
        view = view_tree(outline, toggle(view, data.draw(rows)), found)
    assert view.visible.tolist() == seen_by_definition(view)


@given(outline=outlines(), data=st.data())
def test_reloading_an_address_shows_the_same_view(outline: Outline, data: st.DataObject) -> None:
    rows = st.integers(0, len(outline) - 1)
    view = view_tree(outline, TreeState())
    for _ in range(data.draw(st.integers(0, 5))):
        step = data.draw(st.sampled_from(sorted(STEPS)))
        row = data.draw(rows)
        state = STEPS[step](view, row)
        view = view_tree(outline, state)
        again = view_tree(outline, TreeState.read(QueryParams(view.state.query())))
        assert again.visible.tolist() == view.visible.tolist()
        assert again.selected == view.selected


@given(outline=outlines(), data=st.data())
def test_open_rows_are_written_so_that_they_can_be_read(outline: Outline, data: st.DataObject) -> None:
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(outline), max_size=len(outline))))
    branches = outline.last > np.arange(len(outline))
    assert (read_rows(outline, write_rows(outline, chosen))[branches] == chosen[branches]).all()


def stops_of(outline: Outline) -> list[int]:
    """Give the failing rows in execution order, without those that only hold where an error begins."""
    propagated = CLASSES.index(NodeClass.PROPAGATED)

    def holds_origin(row: int) -> bool:
        below = slice(row + 1, int(outline.last[row]) + 1)
        return bool((outline.origin & outline.bad)[below].any())

    return sorted(
        (
            row
            for row in np.flatnonzero(outline.bad).tolist()
            if outline.node_class[row] != propagated or not holds_origin(row)
        ),
        key=lambda row: outline.order[row],
    )


@given(outline=outlines())
def test_going_from_bad_row_to_bad_row_visits_each_once_in_execution_order(outline: Outline) -> None:
    expected = stops_of(outline)
    first = int(np.argmin(outline.order))
    view = view_tree(outline, TreeState(row=first))
    visited = [first] if first in expected else []
    while (row := next_stop(view, Stop.BAD)) is not None and row not in visited:
        visited.append(row)
        view = view_tree(outline, select(view, row))
        assert row in view.visible
    assert row == (visited[0] if visited else None)  # and then from the first again
    assert visited == expected
    if len(expected) > 1:
        assert next_stop(view, Stop.BAD, backwards=True) == expected[-2]


def test_what_only_holds_the_origin_of_an_error_is_not_stopped_at_after_it() -> None:
    codes = [CLASSES.index(each) for each in (NodeClass.PROPAGATED, NodeClass.SOURCE, NodeClass.PROPAGATED)]
    outline = replace(
        small_outline(bad=[True] * 3, own=[True] * 3),
        parent=np.array([-1, 0, -1], np.int32),
        last=np.array([1, 1, 2], np.int32),
        order=np.array([1, 0, 2], np.int32),
        node_class=np.array(codes, np.int8),
        origin=np.array([False, True, False]),
    )
    view = view_tree(outline, TreeState(row=1))
    assert next_stop(view, Stop.BAD) == 2
    view = view_tree(outline, TreeState(row=2))
    assert next_stop(view, Stop.BAD, backwards=True) == 1
    without = replace(outline, origin=np.zeros(3, np.bool_))
    assert next_stop(view_tree(without, TreeState(row=1)), Stop.BAD) == 0


def test_the_next_unmatched_row_is_one_inside_the_selected_row_first_whatever_ran_earlier() -> None:
    outline = replace(
        small_outline(unmatched=[False, False, True, True], own=[True] * 4),
        parent=np.array([-1, -1, 1, -1], np.int32),
        last=np.array([0, 2, 2, 3], np.int32),
        order=np.array([3, 2, 0, 1], np.int32),
    )
    found = [next_stop(view_tree(outline, TreeState(row=row)), Stop.UNMATCHED) for row in range(4)]
    assert found == [2, 2, 3, 2]
    view = view_tree(outline, TreeState(row=3))
    assert next_stop(view, Stop.UNMATCHED, backwards=True) == 2


@given(outline=outlines(), data=st.data())
def test_a_step_leaves_the_rows_as_they_were_just_if_the_same_are_seen_and_open(
    outline: Outline, data: st.DataObject
) -> None:
    rows = st.integers(0, len(outline) - 1)
    view = view_tree(outline, TreeState(row=data.draw(rows)))
    state = STEPS[data.draw(st.sampled_from(sorted(STEPS)))](view, data.draw(rows))
    after = step_to(view, state)
    seen = [[(row, bool(each.opened[row])) for row in each.visible.tolist()] for each in (view, after)]
    assert after.same_rows == (seen[0] == seen[1])


@given(outline=outlines(), data=st.data())
def test_a_row_that_was_opened_or_closed_is_sent_with_what_is_seen_below_it(
    outline: Outline, data: st.DataObject
) -> None:
    view = view_tree(outline, open_below(view_tree(outline, TreeState()), None))
    row, most = data.draw(st.integers(0, len(outline) - 1)), data.draw(st.integers(0, 40))
    after = step_to(view, toggle(view, row))
    for each in (view, after):
        (places,) = pieces_asked_for(each, QueryParams(f"toggle={row}&most={most}"))
        sent = each.visible[places.start : places.stop].tolist()
        below = [seen for seen in each.visible.tolist() if row < seen <= outline.last[row]]
        assert sent == [row, *below[:most]]


def test_rows_are_sent_as_they_are_asked_for_or_around_the_selected_one() -> None:
    outline = small_tree(1000)
    view = view_tree(outline, open_below(view_tree(outline, TreeState(row=500)), None))

    def asked(query: str) -> list[range]:
        return pieces_asked_for(view, QueryParams(query))

    assert asked("rows=32-47.60-63.9") == [range(32, 48), range(60, 64), range(9, 10)]
    assert sum(map(len, asked("rows=0-999.0-999"))) == MOST_ROWS
    assert len(asked("rows=" + ".".join(["9-5"] * 5000))) == MOST_ROWS
    around = asked("")
    assert (len(around), {len(piece) for piece in around}) == (CHUNKS, {CHUNK})
    assert around[0].start <= view.position < around[-1].stop
    for nonsense in ("rows=a", "rows=1-b", "rows=.", "rows=-4"):
        with pytest.raises(SettingsError, match=like("server.no_list_of_places", "server.not_a_number")):
            asked(nonsense)


@given(outline=outlines())
def test_a_tree_opens_where_an_error_begins_first(outline: Outline) -> None:
    view = view_tree(outline, TreeState())
    assert view.selected in view.visible
    if outline.origin.any():
        assert view.selected == min(
            np.flatnonzero(outline.origin).tolist(), key=lambda row: outline.order[row]
        )


@given(outline=outlines(), data=st.data())
def test_what_is_selected_stays_in_sight_when_something_is_closed(
    outline: Outline, data: st.DataObject
) -> None:
    view = view_tree(outline, open_below(view_tree(outline, TreeState()), None))
    closed = view_tree(outline, toggle(view, data.draw(st.integers(0, len(outline) - 1))))
    assert closed.selected in closed.visible


@pytest.mark.parametrize(
    "query",
    [
        "row=x",
        "row=-1",
        "row=1e3",
        "open=a",
        "open=1-",
        "open=.-.",
        "verdict=fine",
        "class=",
        "kind=%00",
        "row=9999999999",
    ],
)
def test_an_address_that_makes_no_sense_is_refused_or_shows_the_default(query: str) -> None:
    outline = small_tree()
    try:
        view = view_tree(outline, TreeState.read(QueryParams(query)))
    except (SettingsError, NotInCatalogueError):
        return
    assert len(view.visible)


def test_a_row_beyond_the_tree_is_not_found() -> None:
    with refuses(NotInCatalogueError, "server.no_row"):
        view_tree(small_tree(), TreeState(row=5))


def test_an_empty_tree_shows_nothing() -> None:
    empty = small_tree(0)
    view = view_tree(empty, TreeState())
    assert (view.selected, view.visible.tolist(), view.position) == (None, [], 0)


def test_the_address_of_a_fully_opened_tree_stays_short() -> None:
    outline = small_tree(100_000)
    view = view_tree(outline, open_below(view_tree(outline, TreeState()), None))
    assert len(view.visible) == 100_000
    assert len(view.state.query()) < 40


def small_tree(rows: int = 3) -> Outline:
    """One row with all others below it."""
    zeros, no = np.zeros(rows, np.int8), np.zeros(rows, np.bool_)
    parent, last = np.zeros(rows, np.int32), np.arange(rows, dtype=np.int32)
    if rows:
        parent[0], last[0] = -1, rows - 1
    return Outline(
        parent,
        last,
        np.arange(rows, dtype=np.int32),
        zeros,
        zeros,
        zeros,
        zeros,
        no,
        no,
        no,
        no,
        np.zeros(rows),
        np.zeros(rows),
        np.full(rows, -1, np.int8),
        ~no,
        np.full(rows, -1, np.int8),
    )


def test_a_list_has_the_largest_error_first_and_nan_of_a_bad_row_before_all() -> None:
    outline = small_outline(
        output_error=[np.nan, 0.5, 2.0, np.nan, 0.1], bad=[False, True, True, True, False], own=[True] * 5
    )
    view = view_tree(outline, TreeState(sort="error"))
    assert view.visible.tolist() == [3, 2, 1, 4, 0]
    view = view_tree(outline, TreeState(sort="error", row=2))
    assert (view.position, next_stop(view, Stop.BAD), next_stop(view, Stop.BAD, backwards=True)) == (1, 1, 3)


def test_a_list_by_amplification_has_rows_of_which_it_is_not_known_last_bad_ones_too() -> None:
    outline = small_outline(
        amplification=[np.nan, 0.5, 2.0, np.nan, np.inf],
        bad=[False, True, False, True, False],
        own=[True] * 5,
    )
    assert view_tree(outline, TreeState(sort="amplification")).visible.tolist() == [4, 2, 1, 3, 0]


def test_a_list_in_execution_order_leaves_out_of_what_nothing_can_be_said() -> None:
    outline = small_outline(order=[4, 0, 3, 1, 2], own=[False, True, True, True, False])
    assert view_tree(outline, TreeState(sort="execution")).visible.tolist() == [1, 3, 2]


def test_rows_with_overflow_can_be_chosen_by_level() -> None:
    outline = small_outline(overflow=[-1, 2, 0, -1, 2])
    state = TreeState(chosen=(("overflow", frozenset({"critical"})),))
    assert np.flatnonzero(view_tree(outline, state).matching).tolist() == [1, 4]


def test_a_row_with_an_incomparable_pair_is_found_by_its_verdict_and_as_incomparable() -> None:
    passes, is_off = VERDICTS.index(Verdict.PASS), VERDICTS.index(Verdict.ERROR)
    outline = small_outline(
        verdict=[passes, is_off, is_off, passes, passes],
        incomparable=[False, True, False, True, False],
        own=[True] * 5,
    )
    state = TreeState(chosen=(("verdict", frozenset({"incomparable"})),))
    assert np.flatnonzero(view_tree(outline, state).matching).tolist() == [1, 3]
    assert {**facets(outline)["verdict"]} == {
        "pass": 3,
        "incomparable": 2,
        "warning": 0,
        "error": 2,
        "unmatched": 0,
    }


@pytest.mark.parametrize("query", ["sort=size", "column=colour", "overflow=low"])
def test_what_cannot_be_chosen_is_refused(query: str) -> None:
    with refuses(SettingsError, "server.no_such_value"):
        TreeState.read(QueryParams(query))


def test_sort_and_columns_are_written_into_the_address_unless_they_are_the_usual_ones() -> None:
    chosen = "q=mlp&regex=1&sort=error&column=order&column=reason"
    assert TreeState.read(QueryParams(chosen)).query() == chosen
    usual = "&".join(f"column={name}" for name in ("verdict", "golden", "output", "class", "input"))
    assert TreeState.read(QueryParams(f"sort=tree&{usual}")).query() == ""


def small_outline(**given: Any) -> Outline:  # noqa: ANN401
    """Make a root with four rows in it, all clean but for what is given."""
    size = 5
    usual = {
        "parent": [-1, 0, 0, 0, 0],
        "last": [4, 1, 2, 3, 4],
        "order": [4, 0, 1, 2, 3],
        "output_error": [np.nan] * size,
        "amplification": [np.nan] * size,
        "overflow": [-1] * size,
        "way": [-1] * size,
        **{name: [0] * size for name in ("verdict", "node_class", "kind", "direction")},
        **{name: [False] * size for name in ("bad", "origin", "unmatched", "incomparable", "own")},
    }
    return Outline(**{name: np.array(given.get(name, values)) for name, values in usual.items()})


@given(outlines(most=80))
def test_of_a_clean_tree_whole_levels_are_open_as_far_as_a_screen_goes(outline: Outline) -> None:
    clean = replace(outline, bad=np.zeros(len(outline), np.bool_))
    depth = [0] * len(clean)
    for row in range(1, len(clean)):
        depth[row] = depth[clean.parent[row]] + 1 if clean.parent[row] >= 0 else 0
    shown = [depth[row] for row in view_tree(clean, TreeState()).visible]
    assert sorted(shown) == sorted(level for level in depth if level <= max(shown))
    next_level = sum(level <= max(shown) + 1 for level in depth)
    assert next_level == len(shown) or next_level > ROWS_OF_A_SCREEN
    assert len(shown) <= ROWS_OF_A_SCREEN or max(shown) == 0


def test_classes_are_counted_and_filtered_by_as_they_are_shown() -> None:
    propagated = CLASSES.index(NodeClass.PROPAGATED)
    outline = small_outline(
        node_class=[propagated] * 3 + [CLASSES.index(NodeClass.CLEAN)] * 2,
        way=[SHOWN_ALONE.index("begins inside"), -1, SHOWN_ALONE.index("from other ranks"), -1, -1],
        own=[True] * 5,
    )
    counts = facets(outline)["class"]
    shown = {name: count for name, count in counts.items() if count}
    assert shown == {"propagated": 1, "begins inside": 1, "from other ranks": 1, "clean": 2}
    assert [BY_RULE[way] for way in WAYS] == list(SHOWN_ALONE)
    assert list(OF_CLASS) == list(SHOWN_ALONE)
    for name, row in (("begins inside", 0), ("propagated", 1), ("from other ranks", 2)):
        state = TreeState.read(QueryParams(urlencode({"class": name})))
        assert np.flatnonzero(view_tree(outline, state).matching).tolist() == [row]
