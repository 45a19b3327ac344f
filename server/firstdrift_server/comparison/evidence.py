"""What the first bad node shows in one look: error in against error out, the limit, and what to do next."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import Comparison
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair
from firstdrift.catalogue.comparisons.tree import Row, get_row
from firstdrift.exports.capture import capture_config
from firstdrift.groups import seconds
from firstdrift_server.parts.addresses import node_address

_ORDERS: Final = 6.0
"""So many powers of ten the picture reaches down from the largest error."""


class Bar(Struct, frozen=True):
    """An error of the node.

    Attributes:
        of: "input", "weight" or "output".
        share: how far its bar reaches, 0 to 1, by the logarithm of the error.
        is_beyond: whether it is more than the limit, or no finite number.
    """

    of: str
    error: float
    share: float
    is_beyond: bool


class Evidence(Struct, frozen=True):
    """The first bad node in one look.

    Attributes:
        limit: error from which on the node is bad; None where no number decided. Likewise its share.
        node: address of its page.
        capture: a configuration that saves its values; None where they were, or nothing is known to.
    """

    bars: tuple[Bar, ...]
    limit: float | None
    limit_share: float | None
    node: str
    capture: str | None


def evidence_of(session: Session, comparison: Comparison, slices: Sequence[SlicePair]) -> Evidence | None:
    """Lay out what the first bad node shows; None if there is none, or its slice is not there."""
    finding = comparison.findings.first_bad_node if comparison.findings is not None else None
    here = {pair.target: pair for pair in slices}.get(finding.coordinates) if finding else None
    if finding is None or here is None:
        return None
    limit = finding.confidence.limit if finding.confidence else None
    errors = _errors(get_row(session, here.id, finding.row))
    top = _top((limit or 0.0, *seconds(errors)))
    return Evidence(
        bars=tuple(Bar(of, error, _share(error, top), is_beyond(error, limit)) for of, error in errors),
        limit=limit,
        limit_share=None if limit is None else _share(limit, top),
        node=node_address(comparison.id, here.position, finding.row),
        capture=capture_config(finding, comparison.target.format) if comparison.target else None,
    )


def _top(errors: Iterable[float]) -> float:
    """Return the error whose bar takes the whole width."""
    return max(filter(math.isfinite, errors), default=0.0) or 1.0


def _errors(row: Row) -> list[tuple[str, float]]:
    said = row.judgement
    found = (("input", said.input_error), ("weight", said.parameter_error), ("output", said.output_error))
    return [(of, error) for of, error in found if error is not None]


def _share(error: float, top: float) -> float:
    """Say how far a bar reaches: 1 for the largest, 0 for what is a millionth of it or less."""
    if not error:
        return 0.0
    if not math.isfinite(error):
        return 1.0
    return min(1.0, max(0.0, 1.0 + math.log10(error / top) / _ORDERS))


def is_beyond(error: float, limit: float | None) -> bool:
    """Tell whether an error is more than the limit; what is no finite number is beyond any."""
    return not math.isfinite(error) or (limit is not None and error > limit)
