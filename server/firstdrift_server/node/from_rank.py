"""From which rank the error of a communication came: what the ranks of one step tell each other."""

from collections.abc import Sequence

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.slice_pairs import SliceLabel, judgements_of, slice_labels_of
from firstdrift.catalogue.comparisons.tree import Row
from firstdrift.parallel.point_to_point import is_communication
from firstdrift.verdict.communication import explain
from firstdrift.verdict.judgement import Finding
from firstdrift_server.parts.addresses import node_address


class FromRank(Struct, frozen=True):
    """What another rank gave, and the address of the node there."""

    rank: int
    node: str
    address: str


def from_rank(session: Session, here: SliceLabel, row: Row) -> FromRank | None:
    """Say which rank the error of a communication comes from; None if it does not come from another."""
    if not row.tree.target or not is_communication(row.tree.type_name):
        return None
    together = _at_once(slice_labels_of(session, here.comparison_id), here)
    if len(together) < 2:  # noqa: PLR2004 - one rank has nobody to take an error from
        return None
    judged = judgements_of(session, [pair.id for pair in together])
    own = judged[here.id]
    sources = (
        found.source
        for found in explain([judged[pair.id] for pair in together])
        if found.judged is own and found.node == row.tree.target[0]
    )
    source = next(sources, None)
    return None if source is None else _link(source, together)


def _at_once(labels: Sequence[SliceLabel], here: SliceLabel) -> list[SliceLabel]:
    """List the slices of one step, token and micro step: one for each rank."""

    def moment(pair: SliceLabel) -> tuple[int | None, ...]:
        return pair.target.step, pair.target.token, pair.target.micro_step

    return [pair for pair in labels if moment(pair) == moment(here)]


def _link(source: Finding, together: Sequence[SliceLabel]) -> FromRank | None:
    for pair in together:
        rank = pair.target.rank
        if rank is not None and rank == source.coordinates.rank:
            address = node_address(pair.comparison_id, pair.position, source.row)
            return FromRank(rank, source.target or source.golden, address)
    return None
