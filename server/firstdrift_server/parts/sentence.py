"""A finding as a sentence in which the places it names are links.

Token 3 is the first bad token; in it layers.2 is ...  ─▶  [Token 3] is the first ... [layers.2] is ...

What is a link is known by the gap of the message in which it stands.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from firstdrift.catalogue.comparisons.slice_pairs import SliceLabel
from firstdrift.exports.report_json import finding_object
from firstdrift.groups import gathered
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.judgement import Finding, Findings
from firstdrift.wording.message import Message
from firstdrift_server.parts.addresses import comparison_address, tree_address


class Linked(Struct, frozen=True):
    """A message, and where the places that it names lead, by the gaps in which they stand."""

    message: Message
    links: Mapping[str, str]


def linked_summary(comparison: int, findings: Findings, slices: Sequence[SliceLabel]) -> Linked:
    """Make links of the names of the first bad token and node in the summary."""
    links = {}
    token, node = findings.first_bad_token, findings.first_bad_node
    if token is not None and (position := position_of(slices, token.coordinates)) is not None:
        links["bad_token"] = comparison_address(comparison, slice=position)
    if node is not None and (address := finding_address(comparison, node, slices)) is not None:
        links["bad_node"] = address
    return Linked(findings.summary, links)


def finding_address(comparison: int, finding: Finding, slices: Sequence[SliceLabel]) -> str | None:
    """Return where a finding is seen in its tree; None if its slice is not (or no longer) there."""
    position = position_of(slices, finding.coordinates)
    return None if position is None else tree_address(comparison, position, row=finding.row)


def findings_object(findings: Findings) -> dict[str, Any]:
    """Describe what is said first."""
    return {
        "summary": findings.summary,
        "first_bad_token": finding_object(findings.first_bad_token),
        "first_bad_node": finding_object(findings.first_bad_node),
    }


def first_position(slices: Sequence[SliceLabel], findings: Findings | None) -> int | None:
    """Find the slice of what is said first, a node before a token; None if there is neither."""
    first = (findings.first_bad_node or findings.first_bad_token) if findings is not None else None
    return None if first is None else position_of(slices, first.coordinates)


class Places:
    """Where slices are in a comparison, by their target coordinates."""

    def __init__(self, slices: Sequence[SliceLabel]) -> None:
        """Remember them."""
        self._known = gathered((_key(pair.target), pair) for pair in slices)

    def position(self, coordinates: Coordinates) -> int | None:
        """Find a slice; the micro step counts where the slice itself has one."""
        here = self._known.get(_key(coordinates), [])
        exact = [pair for pair in here if pair.target.micro_step == coordinates.micro_step]
        return next((pair.position for pair in exact or here), None)


def position_of(slices: Sequence[SliceLabel], coordinates: Coordinates) -> int | None:
    """Find one slice by its target coordinates."""
    return Places(slices).position(coordinates)


def _key(coordinates: Coordinates) -> tuple[int | None, ...]:
    return (coordinates.step, coordinates.rank, coordinates.token)
