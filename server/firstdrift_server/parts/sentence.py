"""A finding as a sentence in which the places it names are links.

"Token 3 is the first bad token; in it layers.2 is ..."  ─▶  [Token 3] is the first ... [layers.2] is ...

The sentence is said in the language of the page, so what is a link in it is left as a gap until then.
"""

from collections.abc import Sequence

from firstdrift.catalogue.comparisons.slice_pairs import SlicePair
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.judgement import Finding, Findings
from firstdrift_frontend.sentences import Gap, Linked, with_gaps
from firstdrift_server.parts.addresses import comparison_address, tree_address


def linked_summary(comparison: int, findings: Findings, slices: Sequence[SlicePair]) -> Linked:
    """Make the names of the first bad token and node in the summary links, in the order of the sentence."""
    gaps = []
    token, node = findings.first_bad_token, findings.first_bad_node
    if token is not None and (position := position_of(slices, token.coordinates)) is not None:
        address = comparison_address(comparison, slice=position)
        gaps.append(Gap(str(token.coordinates.token), address, before="Token "))
    if node is not None:
        gaps.append(Gap(node.coordinates.describe(), is_said=True))
        name = node.module or node.target or node.golden
        gaps.append(Gap(name, finding_address(comparison, node, slices)))
    return with_gaps(findings.summary, gaps)


def finding_address(comparison: int, finding: Finding, slices: Sequence[SlicePair]) -> str | None:
    """Return where a finding is seen in its tree; None if its slice is not (or no longer) there."""
    position = position_of(slices, finding.coordinates)
    return None if position is None else tree_address(comparison, position, row=finding.row)


class Places:
    """Where slices are in a comparison, by their target coordinates."""

    def __init__(self, slices: Sequence[SlicePair]) -> None:
        """Remember them."""
        self._known: dict[tuple[int | None, ...], list[SlicePair]] = {}
        for pair in slices:
            self._known.setdefault(_key(pair.target), []).append(pair)

    def position(self, coordinates: Coordinates) -> int | None:
        """Find a slice; the micro step counts where the slice itself has one."""
        here = self._known.get(_key(coordinates), [])
        exact = [pair for pair in here if pair.target.micro_step == coordinates.micro_step]
        return next((pair.position for pair in exact or here), None)


def position_of(slices: Sequence[SlicePair], coordinates: Coordinates) -> int | None:
    """Find one slice by its target coordinates."""
    return Places(slices).position(coordinates)


def _key(coordinates: Coordinates) -> tuple[int | None, ...]:
    return (coordinates.step, coordinates.rank, coordinates.token)
