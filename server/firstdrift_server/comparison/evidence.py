"""What the first bad node shows in one look: error in against error out, the limit, and what to do next."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import Comparison
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair
from firstdrift.catalogue.comparisons.tree import Row, rows_with_kinds
from firstdrift.exports.capture import capture_config
from firstdrift.groups import seconds
from firstdrift.metrics.measurement import DATA
from firstdrift.model.node import NodeKind
from firstdrift.verdict.confidence import Confidence, Quantity
from firstdrift.verdict.judgement import Finding
from firstdrift.verdict.tree import TreeRow
from firstdrift_server.parts.addresses import node_address
from firstdrift_server.parts.flow import Flow, Neighbour, flow_of
from firstdrift_server.parts.measured_from import measured_from

_DRAWN: Final = 0.004
"""A line that lies nearer to the beginning of a bar is not told from it."""


class Bar(Struct, frozen=True):
    """An error of the node.

    Attributes:
        of: "input", "weight", "output"; "end": the largest or smallest element of the weight; "unexplained":
            an input that nothing recorded explains, of the node or of one inside it.
        share: how far its bar reaches, 0 to 1.
        is_beyond: whether it is more than its limit, or no finite number.
        limit_share: where its limit lies; None if it has none, or one that is too small to be drawn.
    """

    of: str
    error: float
    share: float
    is_beyond: bool
    limit_share: float | None


class Evidence(Struct, frozen=True):
    """The first bad node in one look.

    Attributes:
        limit: error from which on the node is bad; None where no number decided.
        limit_of: what it limits, such as "output"; None likewise, and of what an earlier version found.
        node: address of its page.
        operator: the node itself, where it is an operator and the finding names its module; None otherwise.
        flow: its neighbours, which tell where in the model it is.
        measured_from: what its errors come from: statistics give lower bounds.
        capture: a configuration that saves its values; None where they were, or nothing is known to.
    """

    bars: tuple[Bar, ...]
    limit: float | None
    limit_of: str | None
    node: str
    operator: Neighbour | None
    flow: Flow
    measured_from: str
    capture: str | None


def evidence_of(session: Session, comparison: Comparison, slices: Sequence[SlicePair]) -> Evidence | None:
    """Lay out what the first bad node shows; None if there is none, or its slice is not there."""
    finding = comparison.findings.first_bad_node if comparison.findings is not None else None
    here = {pair.target: pair for pair in slices}.get(finding.coordinates) if finding else None
    if finding is None or here is None:
        return None
    sure = finding.confidence
    limit, limit_of = (None, None) if sure is None else (sure.limit, _named(sure))
    rows, kinds = rows_with_kinds(session, here.id, {finding.row}, ())
    errors = [*_errors(rows[finding.row]), *_of_its_own(sure)]
    widest = widest_of(seconds(errors), limit)
    return Evidence(
        bars=tuple(bar(of, error, limit if limit_of in {None, of} else None, widest) for of, error in errors),
        limit=limit,
        limit_of=limit_of,
        node=(node := node_address(comparison.id, here.position, finding.row)),
        operator=_operator(finding, rows[finding.row].tree, node),
        flow=flow_of(session, here, rows[finding.row].tree),
        measured_from=measured_from(kinds.get(finding.row)),
        capture=None if DATA in kinds.get(finding.row, ()) else _capture(finding, comparison),
    )


def _operator(finding: Finding, row: TreeRow, address: str) -> Neighbour | None:
    is_named = row.kind is not NodeKind.API or finding.module is None
    return None if is_named else Neighbour(row.label, address)


def _capture(finding: Finding, comparison: Comparison) -> str | None:
    return capture_config(finding, comparison.target.format) if comparison.target else None


def bar(of: str, error: float, limit: float | None, widest: float) -> Bar:
    """Draw an error, and the limit that it has, beside others of which the largest takes the whole width."""
    share = None if limit is None else _share(limit, widest)
    limit_share = share if share is not None and share >= _DRAWN else None
    return Bar(of, error, _share(error, widest), is_beyond(error, limit), limit_share)


def widest_of(errors: Iterable[float], limit: float | None) -> float:
    """Return the error whose bar takes the whole width: beside an infinite one, at least 100 %."""
    known = (limit or 0.0, *errors)
    top = max(filter(math.isfinite, known), default=0.0)
    return (top or 1.0) if all(map(math.isfinite, known)) else max(top, 1.0)


def _errors(row: Row) -> list[tuple[str, float]]:
    said = row.judgement
    found = (("input", said.input_error), ("weight", said.parameter_error), ("output", said.output_error))
    return [(of, error) for of, error in found if error is not None]


_NAMES: Final = {Quantity.END: "end", Quantity.INPUT: "unexplained"}
"""The bars of what has a limit, but is no error of the node as a whole."""


def _named(sure: Confidence) -> str | None:
    return None if sure.of is None else _NAMES.get(sure.of, sure.of.value)


def _of_its_own(sure: Confidence | None) -> list[tuple[str, float]]:
    """Return what decided and how far it is off, where that is no error of the node as a whole."""
    if sure is None or sure.of not in _NAMES or sure.margin is None or sure.limit is None:
        return []
    return [(_NAMES[sure.of], sure.margin * sure.limit)]


def _share(error: float, widest: float) -> float:
    """Say how far a bar reaches, from 0 to 1."""
    return min(1.0, error / widest) if math.isfinite(error) else 1.0


def is_beyond(error: float, limit: float | None) -> bool:
    """Tell whether an error is more than the limit; what is no finite number is beyond any."""
    return not math.isfinite(error) or (limit is not None and error > limit)
