"""What the catalogue gives of a comparison that a worker made, against the report of the library."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from databases import new_postgresql_database
from sqlalchemy import Engine, event, text
from working import compare_with_worker

from firstdrift.catalogue import tree
from firstdrift.catalogue.comparisons import (
    SlicePair,
    delete_comparison,
    get_slice_pair,
    purge_deleted,
    slice_pairs_of,
)
from firstdrift.catalogue.engine import database_url, open_engine, reading, writing
from firstdrift.catalogue.results import without_details
from firstdrift.catalogue.tree import Filter, SortBy, Which
from firstdrift.comparison.compare import compare
from firstdrift.comparison.report import Report, SliceResult
from firstdrift.dumps.dump import Direction, NodeKind
from firstdrift.errors import NotInCatalogueError
from firstdrift.verdict.judgement import ORIGINS, Verdict
from firstdrift.verdict.tree import TreeRow


@dataclass(frozen=True)
class Made:
    """A comparison in a catalogue, and the report of the same dumps."""

    engine: Engine
    comparison_id: int
    report: Report

    @property
    def result(self) -> SliceResult:
        return self.report.slices[0]

    def pair(self) -> SlicePair:
        with reading(self.engine) as session:
            return get_slice_pair(session, self.comparison_id, 0)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def made(
    request: pytest.FixtureRequest, unpacked: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Made]:
    if request.param == "sqlite":
        url = database_url(tmp_path_factory.mktemp("catalogue"))
    else:
        url = new_postgresql_database(request.getfixturevalue("postgresql"))
    dumps = unpacked("msprobe/d4_renamed")
    golden, target = dumps / "golden", dumps / "target"
    comparison = compare_with_worker(url, golden, target)
    engine = open_engine(url)
    yield Made(engine, comparison.id, compare(golden, target))
    engine.dispose()


def is_bad(result: SliceResult, row: TreeRow) -> bool:
    return result.judgement.rows[row.index].verdict in (Verdict.WARNING, Verdict.ERROR)


def words_of(row: TreeRow) -> str:
    return "\n".join((row.label, row.path or "", *row.golden, *row.target)).lower()


def said(records: Iterable[object]) -> str:
    """Compare by what is printed, for NaN differs from itself; SQLite knows no -0.0."""
    return repr(list(records)).replace("=-0.0,", "=0.0,")


def test_rows_come_back_as_they_were_made(made: Made) -> None:
    with reading(made.engine) as session:
        rows = list(tree.all_rows(session, made.pair().id))
    matches = made.result.plan.matches
    assert [row.tree for row in rows] == list(made.result.rows)
    assert said(row.judgement for row in rows) == said(made.result.judgement.rows)
    assert [row.match for row in rows] == [
        None if row.match is None else matches[row.match] for row in made.result.rows
    ]


def test_pairs_come_back_as_they_were_made(made: Made) -> None:
    with reading(made.engine) as session:
        pairs = list(tree.all_pairs(session, made.pair().id))
        assert tree.get_pair(session, made.pair().id, 3).plan == pairs[3].plan
        with pytest.raises(NotInCatalogueError):
            tree.get_pair(session, made.pair().id, len(pairs))
    assert said(pair.plan for pair in pairs) == said(made.result.plan.pairs)
    assert said(pair.measurement for pair in pairs) == said(made.result.measurements)
    assert said(pair.judgement for pair in pairs) == said(made.result.judgement.pairs)


def test_a_slice_pair_says_what_was_found_in_it(made: Made) -> None:
    pair = made.pair()
    assert repr(pair.judgement) == repr(without_details(made.result.judgement))
    assert pair.golden == made.result.plan.golden.coordinates
    assert pair.target == made.result.plan.target.coordinates
    assert pair.unmatched_golden == made.result.plan.unmatched_golden_tensors
    assert (pair.rows, pair.pairs) == (len(made.result.rows), len(made.result.plan.pairs))
    with reading(made.engine) as session:
        assert slice_pairs_of(session, made.comparison_id) == (pair,)


def test_each_row_has_its_children_and_its_way_from_the_top(made: Made) -> None:
    rows = made.result.rows
    with reading(made.engine) as session:
        slice_pair = made.pair().id
        for parent in (None, 0, rows[len(rows) // 2].parent):
            children = [row.index for row in rows if row.parent == parent]
            assert [row.tree.index for row in tree.children_of(session, slice_pair, parent)] == children
            assert tree.count_children(session, slice_pair, parent) == len(children)
        row = rows[-1]
        way = []
        while row.parent is not None:
            row = rows[row.parent]
            way.append(row)
        found = tree.path_to_row(session, slice_pair, len(rows) - 1)
        assert [row.tree for row in found] == way[::-1]
        assert tree.get_row(session, slice_pair, 7).tree == rows[7]
        with pytest.raises(NotInCatalogueError):
            tree.get_row(session, slice_pair, len(rows))


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("which", list(Which))
def test_one_gets_from_each_bad_or_unmatched_row_to_the_next(
    made: Made, which: Which, backwards: bool
) -> None:
    result = made.result
    wanted = {
        Which.BAD: lambda row: is_bad(result, row),
        Which.ORIGIN: lambda row: result.judgement.rows[row.index].node_class in ORIGINS,
        Which.UNMATCHED: lambda row: row.match is None,
    }[which]
    expected = [row.index for row in sorted(result.rows, key=lambda row: row.order) if wanted(row)]
    met: list[int] = []
    with reading(made.engine) as session:
        here = None
        while row := tree.next_row(session, made.pair().id, here, which, backwards=backwards):
            here = row.tree.index
            met.append(here)
    assert met == (expected[::-1] if backwards else expected)
    assert which is Which.ORIGIN or len(expected) > 1


def test_a_row_is_found_by_the_name_of_its_node_on_either_side(made: Made) -> None:
    slice_pair = made.pair().id
    with reading(made.engine) as session:
        for row in made.result.rows[:60]:
            for name in row.golden:
                found = tree.find_row(session, slice_pair, golden=name)
                assert found is not None
                assert found.tree == row
            for name in row.target:
                found = tree.find_row(session, slice_pair, target=name)
                assert found is not None
                assert found.tree == row
        assert tree.find_row(session, slice_pair, golden="no such node") is None
        assert tree.find_row(session, slice_pair, target="Module") is None


def test_only_what_lies_in_open_rows_is_visible(made: Made) -> None:
    rows = made.result.rows
    parents = [row.index for row in rows if row.last > row.index]
    opened, inside_closed = {0, parents[2]}, parents[-1]
    visible = [row.index for row in rows if row.parent is None or row.parent in opened]
    with reading(made.engine) as session:
        window = tree.visible_rows(session, made.pair().id, {*opened, inside_closed}, limit=1000)
        part = tree.visible_rows(session, made.pair().id, opened, offset=2, limit=3)
    assert [row.tree.index for row in window.rows] == visible
    assert window.total == len(visible)
    assert [row.tree.index for row in part.rows] == visible[2:5]


def test_rows_are_filtered_by_what_is_said_of_them(made: Made) -> None:
    result = made.result
    filters = {
        Filter(verdicts=frozenset({Verdict.ERROR})): lambda row: (
            result.judgement.rows[row.index].verdict is Verdict.ERROR
        ),
        Filter(kinds=frozenset({NodeKind.MODULE})): lambda row: row.kind is NodeKind.MODULE,
        Filter(directions=frozenset({Direction.BACKWARD})): lambda row: row.direction is Direction.BACKWARD,
        Filter(below=3): lambda row: 3 <= row.index <= result.rows[3].last,
        Filter(text="Q_PROJ"): lambda row: "q_proj" in words_of(row),
    }
    with reading(made.engine) as session:
        for only, wanted in filters.items():
            expected = [row for row in result.rows if wanted(row)]
            assert expected
            window = tree.list_rows(session, made.pair().id, only, sort_by=SortBy.TREE, limit=None)
            assert [row.tree for row in window.rows] == expected
            assert window.total == len(expected)


def test_the_worst_rows_come_first_and_those_without_a_number_last(made: Made) -> None:
    with reading(made.engine) as session:
        window = tree.list_rows(
            session, made.pair().id, Filter(), sort_by=SortBy.OUTPUT_ERROR, descending=True, limit=None
        )
    errors = [row.judgement.output_error for row in window.rows]
    known = [error for error in errors if error is not None]
    assert len(errors) == len(made.result.rows)
    assert known == sorted(known, reverse=True)
    assert errors == known + [None] * (len(errors) - len(known))


@pytest.mark.parametrize("words", ["q_proj", "Q_PROJ", "%", "_", "'; drop table rows; --", "\0", "\udcff"])
def test_searching_finds_names_and_nothing_else(made: Made, words: str) -> None:
    expected = [row.index for row in made.result.rows if words.lower() in words_of(row)]
    with reading(made.engine) as session:
        found = tree.search_rows(session, made.pair().id, words, limit=10_000)
    assert [row.tree.index for row in found] == expected


def test_pairs_of_a_row_are_those_of_its_match(made: Made) -> None:
    plan = made.result.plan
    row = next(row for row in made.result.rows if row.match == plan.pairs[-1].match)
    with reading(made.engine) as session:
        pairs = tree.pairs_of_row(session, made.pair().id, row.index)
    assert [pair.plan for pair in pairs] == [pair for pair in plan.pairs if pair.match == row.match]


def test_charts_get_their_points(made: Made) -> None:
    judged = made.result.judgement.rows
    with reading(made.engine) as session:
        points = tree.scatter_points(session, made.pair().id)
        layers = tree.layer_errors(session, made.comparison_id)
    assert {point.index for point in points} == {
        index for index, row in enumerate(judged) if row.output_error is not None
    }
    assert [layer.path for layer in layers] == [f"model.layers.{number}" for number in range(4)]
    assert all(layer.output_error == judged[layer.index].output_error for layer in layers)


QUESTIONS = {
    "children": lambda session, pair: tree.children_of(session, pair, 5),
    "next": lambda session, pair: tree.next_row(session, pair, 5, Which.BAD),
    "previous": lambda session, pair: tree.next_row(session, pair, 5, Which.ORIGIN, backwards=True),
    "unmatched": lambda session, pair: tree.next_row(session, pair, None, Which.UNMATCHED),
    "row": lambda session, pair: tree.get_row(session, pair, 5),
    "way": lambda session, pair: tree.path_to_row(session, pair, 50),
    "visible": lambda session, pair: tree.visible_rows(session, pair, {0, 1}),
    "search": lambda session, pair: tree.search_rows(session, pair, "mlp"),
    "pairs": lambda session, pair: tree.pairs_of_row(session, pair, 5),
    "pair": lambda session, pair: tree.get_pair(session, pair, 5),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_index_answers_each_question(made: Made, question: str) -> None:
    if made.engine.dialect.name != "sqlite":
        pytest.skip("PostgreSQL reads small tables through whatever indexes they have")
    asked: list[tuple[str, tuple[object, ...]]] = []

    def note(*arguments: object) -> None:
        _, _, statement, parameters, *_ = arguments
        asked.append((str(statement), tuple(parameters)))  # type: ignore[arg-type]

    slice_pair = made.pair().id
    event.listen(made.engine, "before_cursor_execute", note)
    with reading(made.engine) as session:
        QUESTIONS[question](session, slice_pair)
    event.remove(made.engine, "before_cursor_execute", note)
    with made.engine.connect() as connection:
        for statement, parameters in asked:
            if statement.startswith(("SELECT", "WITH")):
                plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
                steps = [step.detail for step in plan]
                assert not [step for step in steps if step.startswith("SCAN") and "above" not in step], steps
                jumps = question in ("next", "previous", "unmatched")
                assert not jumps or any("ix_rows_" in step for step in steps), steps
                assert not jumps or not any("TEMP B-TREE" in step for step in steps), steps


def test_nothing_is_left_of_rows_when_their_comparison_goes(
    unpacked: Callable[[str], Path], database: str
) -> None:
    dumps = unpacked("msprobe/llama_stat_list")
    compare_with_worker(database, dumps / "golden", dumps / "target")
    engine = open_engine(database)
    with writing(engine) as session:
        delete_comparison(session, 1)
    with writing(engine) as session:
        assert purge_deleted(session, older_than=timedelta(0)) == 1
    tables = [
        "comparisons",
        "slice_pairs",
        "rows",
        "pairs",
        "measurements",
        "dumps",
        "slices",
        "nodes",
        "tensors",
    ]
    with reading(engine) as session:
        left = {table: session.scalar(text(f"SELECT count(*) FROM {table}")) for table in tables}  # noqa: S608
    engine.dispose()
    assert left == dict.fromkeys(tables, 0)
