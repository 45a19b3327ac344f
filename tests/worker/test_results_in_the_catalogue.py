"""What the catalogue gives of a comparison that a worker made, against the report of the library."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from databases import new_postgresql_database
from msgspec.structs import replace
from sqlalchemy import Engine, delete, event, text
from sqlalchemy.orm import Session
from working import compare_with_worker

from firstdrift.catalogue.comparisons import charts, tree
from firstdrift.catalogue.comparisons.charts import layer_errors
from firstdrift.catalogue.comparisons.kept import KeptRow
from firstdrift.catalogue.comparisons.outline import load_outline, rows_containing
from firstdrift.catalogue.comparisons.overview import load_overview
from firstdrift.catalogue.comparisons.records import create_comparison, delete_comparison, purge_deleted
from firstdrift.catalogue.comparisons.sides import called, load_sides, rows_named
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair, get_slice_pair, slice_pairs_of
from firstdrift.catalogue.comparisons.trained import whole_judgements
from firstdrift.catalogue.comparisons.tree import all_pairs, all_rows
from firstdrift.catalogue.engine import database_url, open_engine, reading, writing
from firstdrift.catalogue.packing import pack
from firstdrift.catalogue.tables import RowBlockEntry
from firstdrift.comparison.compare import compare
from firstdrift.comparison.report import Options, Report, SliceResult
from firstdrift.comparison.session import without_details
from firstdrift.errors import NotInCatalogueError
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.verdict.earlier import without_parameters
from firstdrift.verdict.judgement import ORIGINS
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


def words_of(row: TreeRow) -> str:
    return "\n".join((row.label, row.path or "", *row.golden, *row.target)).lower()


def said(records: Iterable[object]) -> str:
    """Compare by what is printed, for NaN differs from itself; SQLite knows no -0.0."""
    return repr(list(records)).replace("=-0.0,", "=0.0,")


def test_rows_come_back_as_they_were_made(made: Made) -> None:
    with reading(made.engine) as session:
        rows = list(all_rows(session, made.pair().id))
    matches = made.result.plan.matches
    assert [row.tree for row in rows] == list(made.result.rows)
    assert said(row.judgement for row in rows) == said(made.result.judgement.rows)
    assert [row.match for row in rows] == [
        None if row.match is None else matches[row.match] for row in made.result.rows
    ]


def test_pairs_come_back_as_they_were_made(made: Made) -> None:
    with reading(made.engine) as session:
        pairs = list(all_pairs(session, made.pair().id))
    assert said(pair.plan for pair in pairs) == said(made.result.plan.pairs)
    assert said(pair.measurement for pair in pairs) == said(made.result.measurements)
    assert said(pair.judgement for pair in pairs) == said(made.result.judgement.pairs)


def test_a_slice_pair_says_what_was_found_in_it(made: Made) -> None:
    pair = made.pair()
    said_of_slice = without_details(made.result.judgement)
    assert said_of_slice.training is not None
    assert said_of_slice.training.parameters
    assert repr(pair.judgement) == repr(without_parameters(said_of_slice))
    assert pair.golden == made.result.plan.golden.coordinates
    assert pair.target == made.result.plan.target.coordinates
    assert pair.unmatched_golden == made.result.plan.unmatched_golden_tensors
    assert (pair.rows, pair.pairs) == (len(made.result.rows), len(made.result.plan.pairs))
    with reading(made.engine) as session:
        assert slice_pairs_of(session, made.comparison_id) == (pair,)
        (whole,) = whole_judgements(session, made.comparison_id).values()
    assert repr(whole) == repr(said_of_slice)


def test_a_row_by_itself_is_the_row_among_all_and_so_is_a_pair(made: Made) -> None:
    with reading(made.engine) as session:
        slice_pair = made.pair().id
        rows, pairs = list(all_rows(session, slice_pair)), list(all_pairs(session, slice_pair))
        for row in rows[:: max(1, len(rows) // 40)]:
            assert said(tree.rows_at(session, slice_pair, (row.tree.index,))) == said([row])
            own = [pair for pair in pairs if pair.row == row.tree.index]
            assert said(tree.pairs_of_row(session, slice_pair, row.tree.index)) == said(own)


def test_the_nodes_that_amplify_most_are_kept_and_found_again(made: Made) -> None:
    with reading(made.engine) as session:
        slice_pair = made.pair().id
        kept = load_overview(session, slice_pair).amplified
        assert (
            kept == charts.most_amplified(session, slice_pair) == charts._found_amplified(session, slice_pair)
        )
    assert kept
    strengths = [node.amplification for node in kept]
    assert strengths == sorted(strengths, reverse=True)


def test_each_row_has_its_way_from_the_top(made: Made) -> None:
    rows = made.result.rows
    with reading(made.engine) as session:
        slice_pair = made.pair().id
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


@pytest.mark.parametrize("words", ["q_proj", "Q_PROJ", "%", "_", "'; drop table rows; --", "\0", "\udcff"])
def test_searching_finds_names_and_nothing_else(made: Made, words: str) -> None:
    expected = [row.index for row in made.result.rows if words.lower() in words_of(row)]
    with reading(made.engine) as session:
        found = rows_containing(session, made.pair().id, words)
    assert found.tolist() == expected


def test_sides_tell_which_rows_have_which_nodes_and_names_lead_to_their_rows(made: Made) -> None:
    pair, rows = made.pair(), made.result.rows
    with reading(made.engine) as session:
        sides = load_sides(session, pair.id, len(rows))
        assert sides.golden.tolist() == [bool(row.golden) for row in rows]
        assert sides.target.tolist() == [bool(row.target) for row in rows]
        assert not all(sides.golden)
        doubtful = {at for at, match in enumerate(made.result.plan.matches) if match.doubtful}
        assert sides.doubtful.tolist() == [row.match in doubtful for row in rows]
        for row in rows[::29]:
            for side, names in (("golden", row.golden), ("target", row.target)):
                assert rows_named(session, pair.id, side, names).tolist() == [row.index] * bool(names)
        assert rows_named(session, pair.id, "golden", ["no such node", "%"]).tolist() == []


def test_as_many_nodes_as_there_can_be_notes_lead_to_their_rows(made: Made) -> None:
    rows = made.result.rows
    names = {name: row.index for row in rows for name in row.golden}
    others = [f"no such node {number}" for number in range(2000)]
    with reading(made.engine) as session:
        found = tree.rows_of_nodes(session, made.pair().id, "golden", [*others, *names, '","'])
    assert found == names


def test_each_of_several_nodes_of_a_row_leads_to_it(made: Made) -> None:
    pair, both = made.pair().id, ("model.q_proj", 'k","v')
    with made.engine.execution_options(writes=True).connect() as connection, Session(connection) as session:
        rows = list(tree.all_kept_rows(session, pair))
        rows[7] = replace(rows[7], tree=replace(rows[7].tree, golden=both))
        session.execute(delete(RowBlockEntry).where(RowBlockEntry.slice_pair_id == pair))
        session.add(RowBlockEntry(slice_pair_id=pair, first=0, content=pack(KeptRow, rows)))
        session.flush()
        for names in (both, both[:1], both[1:]):
            assert tree.rows_of_nodes(session, pair, "golden", names) == dict.fromkeys(names, 7)
            assert rows_named(session, pair, "golden", names).tolist() == [7]
        assert rows_named(session, pair, "golden", ["k", "v", "q_proj"]).tolist() == []
        session.rollback()


def test_a_golden_node_is_called_as_its_own_dump_calls_it(made: Made) -> None:
    target = "Module.model.layers.1.feed_forward.LlamaMLP.forward.0"
    row = next(row for row in made.result.rows if row.target == (target,))
    assert row.label == "feed_forward"
    names = [*row.golden, "Functional.linear.7.forward", "no such node"]
    with reading(made.engine) as session:
        assert called(session, made.pair().golden_slice_id, names) == {
            row.golden[0]: ("mlp", "LlamaMLP"),
            "Functional.linear.7.forward": ("Functional.linear.7", "Functional.linear"),
        }


def test_pairs_of_a_row_are_those_of_its_match(made: Made) -> None:
    plan = made.result.plan
    row = next(row for row in made.result.rows if row.match == plan.pairs[-1].match)
    with reading(made.engine) as session:
        pairs = tree.pairs_of_row(session, made.pair().id, row.index)
    assert [pair.plan for pair in pairs] == [pair for pair in plan.pairs if pair.match == row.match]


def test_the_map_of_layers_gets_its_cells(made: Made) -> None:
    judged = made.result.judgement.rows
    with reading(made.engine) as session:
        layers = layer_errors(session, made.comparison_id)
    assert layers.paths == [f"model.layers.{number}" for number in range(4)]
    assert layers.errors == [judged[row].output_error for row in layers.rows]


def test_rows_tell_what_their_numbers_were_computed_from(made: Made) -> None:
    expected: dict[int, set[MeasurementKind]] = {}
    row_of_match = {row.match: row.index for row in made.result.rows}
    for pair, measured in zip(made.result.plan.pairs, made.result.measurements, strict=True):
        expected.setdefault(row_of_match[pair.match], set()).add(measured.kind)
    with reading(made.engine) as session:
        slice_pair = made.pair().id
        _, found = tree.rows_with_kinds(session, slice_pair, (), range(len(made.result.rows)))
        outline = load_outline(session, slice_pair)
    assert found == expected
    assert {MeasurementKind.STATISTICS, MeasurementKind.SCALAR} <= set().union(*found.values())
    origins = {i for i, row in enumerate(made.result.judgement.rows) if row.node_class in ORIGINS}
    assert set(outline.own.nonzero()[0].tolist()) == expected.keys() | origins


QUESTIONS = {
    "row": lambda session, pair: tree.get_row(session, pair, 5),
    "way": lambda session, pair: tree.path_to_row(session, pair, 50),
    "pairs": lambda session, pair: tree.pairs_of_row(session, pair, 5),
    "kinds": lambda session, pair: tree.rows_with_kinds(session, pair, (3,), range(100)),
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
                assert not [step for step in steps if step.startswith("SCAN")], steps


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
        assert session.scalar(text("SELECT count(*) FROM dumps")) == 2  # just indexed
        session.execute(text("UPDATE dumps SET indexed_at = indexed_at - 4000"))
        other = create_comparison(session, dumps / "golden", dumps / "gone", Options())
    with writing(engine) as session:
        delete_comparison(session, other)
    with writing(engine) as session:
        assert purge_deleted(session, older_than=timedelta(0)) == 1
    tables = [
        "comparisons",
        "slice_pairs",
        "row_blocks",
        "pair_blocks",
        "overviews",
        "plans",
        "measurement_blocks",
        "dumps",
        "slices",
        "node_blocks",
    ]
    with reading(engine) as session:
        left = {table: session.scalar(text(f"SELECT count(*) FROM {table}")) for table in tables}  # noqa: S608
    engine.dispose()
    assert left == dict.fromkeys(tables, 0)
