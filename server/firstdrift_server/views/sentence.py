"""A finding as a sentence in which the places it names are links.

"Token 3 is the first bad token; in it layers.2 is ..."  ─▶  [Token 3] is the first ... [layers.2] is ...
"""

from collections.abc import Sequence
from dataclasses import dataclass

from firstdrift.catalogue.comparisons import SlicePair
from firstdrift.dumps.dump import Coordinates
from firstdrift.verdict.judgement import Finding, Findings
from firstdrift_server.views.addresses import comparison_address, tree_address


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a sentence; with an address it is a link."""

    text: str
    address: str | None = None


def linked_summary(comparison: int, findings: Findings, slices: Sequence[SlicePair]) -> list[Piece]:
    """Turn the names of the first bad token and node in the summary into links."""
    links = []
    token, node = findings.first_bad_token, findings.first_bad_node
    if token is not None and (position := position_of(slices, token.coordinates)) is not None:
        links.append((f"Token {token.coordinates.token}", comparison_address(comparison, slice=position)))
    if node is not None and (address := finding_address(comparison, node, slices)) is not None:
        links.append((node.module or node.target or node.golden, address))
    return with_links(findings.summary, links)


def with_links(sentence: str, links: Sequence[tuple[str, str]]) -> list[Piece]:
    """Cut a sentence at the first occurrence of each phrase, phrases in the order of the sentence."""
    pieces, rest = [], sentence
    for phrase, address in links:
        before, found, after = rest.partition(phrase)
        if found and phrase:
            pieces += [Piece(before), Piece(phrase, address)]
            rest = after
    return [piece for piece in (*pieces, Piece(rest)) if piece.text]


def finding_address(comparison: int, finding: Finding, slices: Sequence[SlicePair]) -> str | None:
    """Return where a finding is seen in its tree; None if its slice is not (or no longer) there."""
    position = position_of(slices, finding.coordinates)
    return None if position is None else tree_address(comparison, position, row=finding.row)


def position_of(slices: Sequence[SlicePair], coordinates: Coordinates) -> int | None:
    """Find a slice by its target coordinates; the micro step counts where the slice itself has one."""

    def key(of: Coordinates) -> tuple[int | None, ...]:
        return (of.step, of.rank, of.token)

    here = [pair for pair in slices if key(pair.target) == key(coordinates)]
    exact = [pair for pair in here if pair.target.micro_step == coordinates.micro_step]
    return next((pair.position for pair in exact or here), None)
