"""What charts are drawn from: few columns of many rows, as lists, and no record for each.

`slice_pair` is the id of a `SlicePair`. Words (verdicts, classes) are their texts.
"""

import math
from collections.abc import Collection
from heapq import nlargest
from itertools import chain
from typing import Any

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.blocks import contents
from firstdrift.catalogue.comparisons.kept import KeptRow, kinds_of
from firstdrift.catalogue.comparisons.overview import (
    MOST_AMPLIFIED,
    AmplifiedNode,
    load_overview,
    overviews_of,
)
from firstdrift.catalogue.comparisons.slice_pairs import judgement_of
from firstdrift.catalogue.comparisons.tree import row_fields, row_fields_at
from firstdrift.catalogue.packing import unpack_arrays
from firstdrift.catalogue.tables import RowBlockEntry
from firstdrift.metrics.measurement import MeasurementKind


class LayerErrors(Struct, frozen=True):
    """Output errors of the layers of all slices: an element of each list for each layer of each slice.

    They come in the order of slices, and in a slice in the order of execution.

    Attributes:
        positions: of the slices in the comparison.
        paths: of the layers, "model.layers.7".
        rows: indexes of their rows; likewise lasts, of the last rows below them.
        verdicts: likewise classes.
        errors: None where nothing is known.
        rules: what decided of the classes.
        excused: what excuses each allows, as `RowJudgement.excused_up_to`.
        kinds: what each was computed from; None where that is not known.
    """

    positions: list[int]
    paths: list[str]
    rows: list[int]
    lasts: list[int]
    verdicts: list[str]
    classes: list[str]
    errors: list[float | None]
    rules: list[str | None]
    excused: list[float | None]
    kinds: list[frozenset[MeasurementKind] | None]

    def layer_of(self, position: int, row: int, module: str | None) -> int | None:
        """Find the layer that a node of a slice lies in, by its row, or in another pass by its module."""
        here = [at for at, where in enumerate(self.positions) if where == position]
        around = (at for at in here if self.rows[at] <= row <= self.lasts[at])
        named = (at for at in here if f"{module or ''}.".startswith(f"{self.paths[at]}."))
        return next(chain(around, named), None)


class NodeErrors(Struct, frozen=True):
    """Input and output errors of the nodes of a slice: an element of each list for each node that has both.

    Attributes:
        rows: indexes of their rows.
        classes: likewise rules, what decided of them.
        kinds: what their numbers were computed from.
        matched: how many nodes of the slice have a partner, whether or not both errors are known.
        with_input: of how many nodes the input error is known; likewise with_output.
    """

    rows: list[int]
    inputs: list[float]
    outputs: list[float]
    classes: list[str]
    rules: list[str | None]
    kinds: list[frozenset[MeasurementKind]]
    matched: int
    with_input: int
    with_output: int


def layer_errors(
    session: Session, comparison_id: int, positions: Collection[int] | None = None
) -> LayerErrors:
    """Read the output errors of the layers of all slices of a comparison, or of those at some positions."""
    layers = [
        (position, layer)
        for position, overview in overviews_of(session, comparison_id, positions).items()
        for layer in overview.layers
    ]
    return LayerErrors(
        positions=[position for position, _ in layers],
        paths=[layer.path for _, layer in layers],
        rows=[layer.row for _, layer in layers],
        lasts=[layer.last for _, layer in layers],
        verdicts=[layer.verdict.value for _, layer in layers],
        classes=[layer.node_class.value for _, layer in layers],
        errors=[layer.output_error for _, layer in layers],
        rules=[layer.rule for _, layer in layers],
        excused=[layer.excused_up_to for _, layer in layers],
        kinds=[None if layer.kinds is None else kinds_of(layer.kinds) for _, layer in layers],
    )


def node_errors(session: Session, slice_pair: int) -> NodeErrors:
    """Read the input and output errors of the nodes of a slice, in the order of the tree."""
    judged = (f"judgement.{name}" for name in ("input_error", "output_error", "node_class", "rule"))
    inputs, outputs, classes, rules, matches, kinds = _columns(
        session, slice_pair, *judged, "tree.match", "kinds"
    )
    both = [row for row, errors in enumerate(zip(inputs, outputs, strict=True)) if None not in errors]
    return NodeErrors(
        rows=both,
        inputs=[inputs[row] for row in both],
        outputs=[outputs[row] for row in both],
        classes=[classes[row].value for row in both],
        rules=[rules[row] for row in both],
        kinds=[kinds_of(kinds[row]) for row in both],
        matched=len(matches) - matches.count(None),
        with_input=len(inputs) - inputs.count(None),
        with_output=len(outputs) - outputs.count(None),
    )


def has_points(session: Session, slice_pair: int) -> bool:
    """Tell whether a node of a slice has both errors, and one that a logarithmic axis can show."""
    return load_overview(session, slice_pair).has_points


def names_of_rows(session: Session, slice_pair: int, rows: Collection[int]) -> dict[int, str]:
    """Give the names of rows: of the target node, where there is none of the golden node."""
    found = row_fields_at(session, slice_pair, frozenset(rows), "tree.target", "tree.golden")
    return {index: next(iter(target or golden), "") for index, target, golden in found}


def most_amplified(session: Session, slice_pair: int) -> tuple[AmplifiedNode, ...]:
    """List the nodes of a slice that make the most of the error they are given, the strongest first."""
    kept = load_overview(session, slice_pair).amplified
    found = _found_amplified(session, slice_pair) if kept is None else kept
    return tuple(node for node in found if math.isfinite(node.amplification))


def _found_amplified(session: Session, slice_pair: int) -> tuple[AmplifiedNode, ...]:
    """Find them among the rows, where an earlier version kept none."""
    names = ("input_error", "output_error", "amplification", "node_class", "rule")
    at = _most_amplified(session, slice_pair)
    asked = ("tree.target", "tree.golden", *(f"judgement.{name}" for name in names), "kinds")
    found = row_fields_at(session, slice_pair, frozenset(at), *asked)
    nodes = {
        row: AmplifiedNode(
            row, next(iter(target or golden), ""), given, gave, amplification, kind.value, rule, kinds
        )
        for row, target, golden, given, gave, amplification, kind, rule, kinds in found
    }
    return tuple(map(nodes.__getitem__, at))


def _most_amplified(session: Session, slice_pair: int) -> list[int]:
    roundoff = judgement_of(session, slice_pair).roundoff
    names = ("tree.order", "judgement.input_error", "judgement.amplification")
    blocks = (content for _, content in contents(session, RowBlockEntry.__table__, slice_pair))
    judged = chain.from_iterable(
        zip(*(column.tolist() for column in unpack_arrays(KeptRow, block, names)), strict=True)
        for block in blocks
    )
    ranked = (
        (amplification, -order, row)
        for row, (order, given, amplification) in enumerate(judged)
        if amplification > 0 and math.isfinite(given) and given > roundoff
    )
    return [row for *_, row in nlargest(MOST_AMPLIFIED, ranked)]


def _columns(session: Session, slice_pair: int, *names: str) -> list[list[Any]]:
    """Read fields of all rows: a list for each."""
    return list(map(list, zip(*row_fields(session, slice_pair, *names), strict=True))) or [[] for _ in names]
