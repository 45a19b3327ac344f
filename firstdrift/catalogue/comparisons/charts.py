"""What charts are drawn from: few columns of many rows, as lists, and no record for each.

`slice_pair` is the id of a `SlicePair`. Words (verdicts, classes) stay the
text they are in the database.
"""

import math
import sys
from collections.abc import Collection
from typing import Any

from msgspec import Struct
from sqlalchemy import Select, String, func, or_, select, type_coerce
from sqlalchemy.orm import Session

from firstdrift.catalogue.tables import RowEntry, SlicePairEntry

# Tables, not entries: rows of entries take twice the time.
_SLICES, _ROWS = SlicePairEntry.__table__.c, RowEntry.__table__.c


class LayerErrors(Struct, frozen=True):
    """Output errors of the layers of all slices: an element of each list for each layer of each slice.

    They come in the order of slices, and in a slice in the order of execution.

    Attributes:
        positions: of the slices in the comparison.
        paths: of the layers, "model.layers.7".
        rows: indexes of their rows; likewise lasts, of the last rows below them.
        verdicts: likewise classes.
        errors: None where nothing is known.
    """

    positions: list[int]
    paths: list[str]
    rows: list[int]
    lasts: list[int]
    verdicts: list[str]
    classes: list[str]
    errors: list[float | None]


class NodeErrors(Struct, frozen=True):
    """Input and output errors of the nodes of a slice: an element of each list for each node that has both.

    Attributes:
        rows: indexes of their rows.
        matched: how many nodes of the slice have a partner, whether or not both errors are known.
        with_input: of how many nodes the input error is known; likewise with_output.
    """

    rows: list[int]
    inputs: list[float]
    outputs: list[float]
    classes: list[str]
    matched: int
    with_input: int
    with_output: int


class AmplifiedNode(Struct, frozen=True):
    """A node that gives more of an error than it is given."""

    row: int
    name: str
    input_error: float
    output_error: float
    amplification: float
    node_class: str


def layer_errors(
    session: Session, comparison_id: int, positions: Collection[int] | None = None
) -> LayerErrors:
    """Read the output errors of the layers of all slices of a comparison, or of those at some positions."""
    query = (
        select(
            _SLICES.position,
            func.coalesce(_ROWS.path, ""),
            _ROWS.index,
            _ROWS.last,
            type_coerce(_ROWS.verdict, String),
            type_coerce(_ROWS.node_class, String),
            _ROWS.output_error,
        )
        .join_from(SlicePairEntry.__table__, RowEntry.__table__, _ROWS.slice_pair_id == _SLICES.id)
        .where(_SLICES.comparison_id == comparison_id, _SLICES.complete, _ROWS.is_layer)
        .order_by(_SLICES.position, _ROWS.order)
    )
    if positions is not None:
        query = query.where(_SLICES.position.in_(positions))
    return LayerErrors(*_columns(session, query, 7))


def node_errors(session: Session, slice_pair: int) -> NodeErrors:
    """Read the input and output errors of the nodes of a slice, in the order of the tree."""
    here = _ROWS.slice_pair_id == slice_pair
    query = (
        select(_ROWS.index, _ROWS.input_error, _ROWS.output_error, type_coerce(_ROWS.node_class, String))
        .where(here, _ROWS.input_error.is_not(None), _ROWS.output_error.is_not(None))
        .order_by(_ROWS.index)
    )
    matched = session.scalar(select(func.count()).where(here, ~_ROWS.is_unmatched)) or 0
    known = select(func.count(_ROWS.input_error), func.count(_ROWS.output_error)).where(here)
    with_input, with_output = session.execute(known).one()
    rows, inputs, outputs, classes = _columns(session, query, 4)
    return NodeErrors(rows, inputs, outputs, classes, matched, with_input, with_output)


def has_points(session: Session, slice_pair: int) -> bool:
    """Tell whether a node of a slice has both errors, and one that a logarithmic axis can show."""
    errors = _ROWS.input_error, _ROWS.output_error
    shown = or_(*(error.between(math.ulp(0.0), sys.float_info.max) for error in errors))
    here = (_ROWS.slice_pair_id == slice_pair, *(error.is_not(None) for error in errors), shown)
    return session.scalar(select(_ROWS.index).where(*here).limit(1)) is not None


def names_of_rows(session: Session, slice_pair: int, rows: Collection[int]) -> dict[int, str]:
    """Give the names of rows: of the target node, where there is none of the golden node."""
    query = select(_ROWS.index, _ROWS.target, _ROWS.golden).where(
        _ROWS.slice_pair_id == slice_pair, _ROWS.index.in_(rows)
    )
    return {index: next(iter(target or golden), "") for index, target, golden in session.execute(query)}


def most_amplified(session: Session, slice_pair: int, limit: int) -> list[AmplifiedNode]:
    """List the nodes of a slice that make the most of the error they are given, the strongest first."""
    query = (
        select(
            _ROWS.index,
            _ROWS.target,
            _ROWS.golden,
            _ROWS.input_error,
            _ROWS.output_error,
            _ROWS.amplification,
            type_coerce(_ROWS.node_class, String),
        )
        .where(_ROWS.slice_pair_id == slice_pair, _ROWS.input_error.is_not(None), _ROWS.amplification > 0)
        .order_by(_ROWS.amplification.desc(), _ROWS.order)
        .limit(limit)
    )
    return [
        AmplifiedNode(index, next(iter(target or golden), ""), *rest)
        for index, target, golden, *rest in session.execute(query)
    ]


def _columns(session: Session, query: Select[*tuple[Any, ...]], width: int) -> list[list[Any]]:
    """Run a query; give a list for each of its columns."""
    found = session.execute(query).fetchall()
    return list(map(list, zip(*found, strict=True))) if found else [[] for _ in range(width)]
