"""Nodes, tensors, rows, pairs and measurements in blocks: until now each was a row of a table of its own.

What was kept is packed anew, slice by slice, so that nothing has to be read or measured again. Plans go: what
was judged before is matched anew when other rules are tried, as after any new version.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.orm import Session

from firstdrift.catalogue.bulk import insert_many
from firstdrift.catalogue.columns import Exact, Listed, Name, Record, Said, Word
from firstdrift.catalogue.comparisons.kept import (
    KINDS,
    KeptPair,
    KeptRow,
    pair_blocks,
    row_blocks,
)
from firstdrift.catalogue.comparisons.measurements import KEY_BYTES, Place, add_measurements, places_of
from firstdrift.catalogue.comparisons.overview import overview_of, pack_overview
from firstdrift.catalogue.dumps.nodes import add_blocks, pack_nodes, paths_of
from firstdrift.catalogue.lookup import record_of
from firstdrift.catalogue.tables import OverviewEntry, PairBlockEntry, RowBlockEntry
from firstdrift.groups import gathered
from firstdrift.matching.plan import Origin, TensorPair
from firstdrift.metrics.measurement import Measurement
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.tensor import DataLocation, Role, Statistics, TensorRecord
from firstdrift.verdict.judgement import (
    NodeClass,
    PairJudgement,
    RollUp,
    RowJudgement,
    SliceJudgement,
    Verdict,
)
from firstdrift.verdict.tree import TreeRow
from firstdrift.wording.message import Message

revision = "0011"
down_revision = "0010"

_MESSAGES, _NAMES, _NUMBER = tuple[Message, ...], Listed(tuple[str, ...]), sa.Integer


def _table(name: str, /, **columns: Any) -> sa.TableClause:  # noqa: ANN401 (types of columns)
    return sa.table(name, *(sa.column(column, type_) for column, type_ in columns.items()))


_SLICE_PAIRS = _table(
    "slice_pairs",
    id=_NUMBER,
    golden_id=_NUMBER,
    target_id=_NUMBER,
    complete=sa.Boolean,
    judgement=Record(SliceJudgement),
)
_SLICES = _table("slices", id=_NUMBER)
_NODES = _table(
    "nodes",
    slice_id=_NUMBER,
    order=_NUMBER,
    name=Name(),
    path=Name(),
    kind=Word(NodeKind),
    type_name=Name(),
    direction=Word(Direction),
    call=_NUMBER,
    parent=Name(),
    micro_step=_NUMBER,
)
_TENSORS = _table(
    "tensors",
    slice_id=_NUMBER,
    node=_NUMBER,
    position=_NUMBER,
    role=Word(Role),
    key=Name(),
    dtype=Name(),
    shape=Listed(tuple[int, ...]),
    has_statistics=sa.Boolean,
    maximum=Exact(),
    minimum=Exact(),
    mean=Exact(),
    norm=Exact(),
    digest=Name(),
    file=Name(),
    container=Name(),
    entry=Name(),
    scalar=Name(),
    requires_grad=sa.Boolean,
    problem=Said(Message),
)
_MEASUREMENTS = _table(
    "measurements",
    id=_NUMBER,
    golden_id=_NUMBER,
    target_id=_NUMBER,
    key=sa.LargeBinary,
    measurement=Record(Measurement),
)
_ROWS = _table(
    "rows",
    slice_pair_id=_NUMBER,
    index=_NUMBER,
    parent=_NUMBER,
    last=_NUMBER,
    depth=_NUMBER,
    order=_NUMBER,
    label=Name(),
    kind=Word(NodeKind),
    type_name=Name(),
    direction=Word(Direction),
    golden=_NAMES,
    target=_NAMES,
    match=_NUMBER,
    path=Name(),
    micro_step=_NUMBER,
    origin=Word(Origin),
    score=Exact(),
    doubtful=sa.Boolean,
    match_reasons=Listed(_MESSAGES),
    verdict=Word(Verdict),
    node_class=Word(NodeClass),
    reasons=Listed(_MESSAGES),
    input_error=Exact(),
    parameter_error=Exact(),
    output_error=Exact(),
    amplification=Exact(),
    worst_pair=_NUMBER,
    rule=Name(),
    errors_below=_NUMBER,
    warnings_below=_NUMBER,
    incomparable_below=_NUMBER,
    unmatched_below=_NUMBER,
    origins_below=_NUMBER,
    worst_below=Word(Verdict),
)
_PAIRS = _table(
    "pairs",
    slice_pair_id=_NUMBER,
    index=_NUMBER,
    row=_NUMBER,
    golden_order=_NUMBER,
    golden_position=_NUMBER,
    target_order=_NUMBER,
    target_position=_NUMBER,
    joined=Record(TensorPair),
    transform=Said(_MESSAGES),
    incomparable=Said(Message),
    measurement_id=_NUMBER,
    verdict=Word(Verdict),
    error=Exact(),
    reasons=Listed(_MESSAGES),
)


def upgrade() -> None:
    """Make the tables of blocks, fill them, and drop those that they stand for."""
    _make_tables()
    with Session(op.get_bind()) as session:
        for slice_id in session.scalars(sa.select(_SLICES.c.id)).all():
            add_blocks(lambda: nullcontext(session), slice_id, pack_nodes(_nodes(session, slice_id)))
        # Of two slices without a pair of tensors nothing was measured, and yet there are rows.
        sides = (sa.select(of.c.golden_id, of.c.target_id) for of in (_MEASUREMENTS, _SLICE_PAIRS))
        for golden, target in session.execute(sa.union(*sides)).all():
            _convert(session, golden, target)
    op.execute(sa.delete(_table("plans")))
    for table in ("pairs", "rows", "measurements", "tensors", "nodes"):
        op.drop_table(table)


def _make_tables() -> None:
    _make_blocks("node_blocks", "slice_id", "slices", _blob("names"), _text("dtypes"), _count("problems"))
    of_problems = sa.text("problems > 0")
    op.create_index(
        "ix_node_blocks_problems",
        "node_blocks",
        ["slice_id"],
        sqlite_where=of_problems,
        postgresql_where=of_problems,
    )
    _make_blocks("row_blocks", "slice_pair_id", "slice_pairs")
    _make_blocks("pair_blocks", "slice_pair_id", "slice_pairs", _count("incomparable"))
    op.create_table(
        "measurement_blocks",
        sa.Column("id", sa.Integer(), nullable=False),
        *(_owner("measurement_blocks", side, "slices") for side in ("golden_id", "target_id")),
        _blob("keys"),
        _blob("content"),
        sa.PrimaryKeyConstraint("id", name="pk_measurement_blocks"),
    )
    op.create_index(
        "ix_measurement_blocks_golden_id_target_id", "measurement_blocks", ["golden_id", "target_id"]
    )
    op.create_index("ix_measurement_blocks_target_id", "measurement_blocks", ["target_id"])
    op.create_table(
        "overviews",
        _owner("overviews", "slice_pair_id", "slice_pairs"),
        _blob("content"),
        sa.PrimaryKeyConstraint("slice_pair_id", name="pk_overviews"),
    )


def _make_blocks(name: str, owner: str, owners: str, *more: sa.Column[Any]) -> None:
    op.create_table(
        name,
        _owner(name, owner, owners),
        _count("first"),
        *more,
        _blob("content"),
        sa.PrimaryKeyConstraint(owner, "first", name=f"pk_{name}"),
    )


def _owner(table: str, name: str, owners: str) -> sa.Column[Any]:
    key = sa.ForeignKey(f"{owners}.id", ondelete="CASCADE", name=f"fk_{table}_{name}")
    return sa.Column(name, sa.Integer(), key, autoincrement=False, nullable=False)


def _count(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Integer(), autoincrement=False, nullable=False)


def _blob(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.LargeBinary(), nullable=False)


def _text(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Text(), nullable=False)


def _nodes(session: Session, slice_id: int) -> list[Node]:
    of_slice = sa.select(_TENSORS).where(_TENSORS.c.slice_id == slice_id)
    found = session.execute(of_slice.order_by(_TENSORS.c.node, _TENSORS.c.position))
    tensors = gathered((row.node, _tensor(row)) for row in found)
    nodes = session.execute(sa.select(_NODES).where(_NODES.c.slice_id == slice_id)).all()
    return [record_of(Node, row, tensors=tuple(tensors[row.order]), sources=()) for row in nodes]


def _tensor(row: Any) -> TensorRecord:  # noqa: ANN401 (the columns of a tensor)
    statistics = Statistics(row.maximum, row.minimum, row.mean, row.norm) if row.has_statistics else None
    location = None if row.file is None else DataLocation(Path(row.file), row.container, row.entry)
    return record_of(TensorRecord, row, statistics=statistics, location=location, shards=None)


def _convert(session: Session, golden: int, target: int) -> None:
    """Pack what was measured of two slices, and all that was judged by it."""
    of_slices = sa.select(_MEASUREMENTS).where(
        _MEASUREMENTS.c.golden_id == golden, _MEASUREMENTS.c.target_id == target
    )
    measured = {
        row.id: (row.key[:KEY_BYTES], row.measurement)
        for row in session.execute(of_slices.order_by(_MEASUREMENTS.c.id))
    }
    if measured:
        add_measurements(session, golden, target, dict(measured.values()))
    places = places_of(session, golden, target)
    known = {key: (places[short], measurement) for key, (short, measurement) in measured.items()}
    pairs = _SLICE_PAIRS.c
    here = (pairs.golden_id == golden, pairs.target_id == target, pairs.complete)
    for slice_pair, judgement in session.execute(sa.select(pairs.id, pairs.judgement).where(*here)).all():
        rows, kept = _rows_and_pairs(session, slice_pair, {"golden": golden, "target": target}, known)
        insert_many(session, RowBlockEntry, row_blocks(rows), slice_pair_id=slice_pair)
        insert_many(session, PairBlockEntry, pair_blocks(kept), slice_pair_id=slice_pair)
        overview = overview_of(judgement, rows, ((pair.row, pair.judgement) for pair in kept))
        content = {"content": [pack_overview(overview)]}
        insert_many(session, OverviewEntry, content, slice_pair_id=slice_pair)


def _rows_and_pairs(
    session: Session,
    slice_pair: int,
    slices: Mapping[str, int],
    measured: Mapping[int, tuple[Place, Measurement]],
) -> tuple[list[KeptRow], list[KeptPair]]:
    of_pairs = sa.select(_PAIRS).where(_PAIRS.c.slice_pair_id == slice_pair).order_by(_PAIRS.c.index)
    pairs = session.execute(of_pairs).all()
    of_rows = sa.select(_ROWS).where(_ROWS.c.slice_pair_id == slice_pair).order_by(_ROWS.c.index)
    found = session.execute(of_rows).all()
    matches = {row.index: row.match for row in found}
    paths = {side: paths_of(session, slice_id) for side, slice_id in slices.items()}
    own = gathered((pair.row, (pair.index, measured[pair.measurement_id][1].kind)) for pair in pairs)
    rows = [_row(row, paths, own.get(row.index, ())) for row in found]
    return rows, [_pair(pair, matches[pair.row], measured[pair.measurement_id][0]) for pair in pairs]


def _row(row: Any, paths: Mapping[str, Mapping[str, str]], pairs: Any) -> KeptRow:  # noqa: ANN401
    indexes = [index for index, _ in pairs]
    below = RollUp(
        row.errors_below,
        row.warnings_below,
        row.incomparable_below,
        row.unmatched_below,
        row.origins_below,
        row.worst_below,
    )
    return KeptRow(
        record_of(TreeRow, row),
        record_of(RowJudgement, row, below=below, excused_up_to=None),  # which these tables do not know
        row.origin,
        row.score or 0.0,
        row.doubtful,
        row.match_reasons,
        (),
        tuple(paths[side].get(name, "") for side in ("golden", "target") for name in getattr(row, side)),
        min(indexes, default=None),
        max(indexes, default=None),
        sum(1 << KINDS.index(kind) for kind in {kind for _, kind in pairs}),
    )


def _pair(pair: Any, match: int, place: Place) -> KeptPair:  # noqa: ANN401 (the columns of a pair)
    return KeptPair(
        pair.row,
        match,
        pair.golden_order,
        pair.golden_position,
        pair.target_order,
        pair.target_position,
        pair.joined,
        pair.transform,
        pair.incomparable,
        PairJudgement(pair.verdict, pair.error, pair.reasons),
        *place,
    )
