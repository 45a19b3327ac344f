"""The tables of dumps: slices, nodes, tensors, and statistics that were computed."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, LargeBinary, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from firstdrift.catalogue.columns import Listed, Now, Record, Said
from firstdrift.catalogue.tables.entry import Entry
from firstdrift.metrics.measurement import SideSummary
from firstdrift.model.slice import Coordinates, OrderOrigin, Problem, SliceListing
from firstdrift.wording.message import Message


class DumpEntry(Entry):
    """A dump as it was when it was indexed last.

    Attributes:
        fingerprint: digest of the names, sizes and modification times of its files, between the version of
            the index and a digest of which slices are still being written, if any are.
    """

    __tablename__ = "dumps"
    __table_args__ = (UniqueConstraint("path", "fingerprint"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    path: Mapped[str]
    format: Mapped[str]
    fingerprint: Mapped[str]
    evidence: Mapped[tuple[Message, ...]] = mapped_column(Record(tuple[Message, ...]))
    attributes: Mapped[dict[str, str | Message]] = mapped_column(Record(dict[str, str | Message]))
    problems: Mapped[tuple[Problem, ...]] = mapped_column(Record(tuple[Problem, ...]))
    indexed_at: Mapped[datetime] = mapped_column(default=Now())


class SliceEntry(Entry):
    """A slice of a dump; its nodes are indexed when a comparison first needs them.

    Attributes:
        position: by which it is named; of one that is no longer as it was, minus its id. Slices that came
            later, and those merged from ranks, have higher ones.
        merged: of a slice that was merged from ranks, how; None for those that lie in the dump.
        problems: what could not be used of it; with `nodes` None, why it could not be read at all.
        nodes: number of nodes; None until they are indexed.
        tensors: number of tensors, Python scalars not counted; None until they are indexed.
        files: by which its files are told from what they were; None of what an earlier version indexed.
        unfinished: what shows that it is still being written; None if it is complete.
    """

    __tablename__ = "slices"
    __table_args__ = (UniqueConstraint("dump_id", "position"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    dump_id: Mapped[int] = mapped_column(ForeignKey("dumps.id", ondelete="CASCADE"))
    position: Mapped[int]
    step: Mapped[int | None]
    rank: Mapped[int | None]
    token: Mapped[int | None]
    micro_step: Mapped[int | None]
    directory: Mapped[str]
    merged: Mapped[SliceListing | None] = mapped_column(Record(SliceListing))
    order_origin: Mapped[OrderOrigin | None] = mapped_column(Record(OrderOrigin))
    problems: Mapped[tuple[Problem, ...]] = mapped_column(Record(tuple[Problem, ...]))
    nodes: Mapped[int | None]
    tensors: Mapped[int | None]
    files: Mapped[str | None]
    unfinished: Mapped[Message | None] = mapped_column(Said(Message))

    @property
    def parts(self) -> int:
        """How many slices of the dump it is: several if it was merged."""
        return max(1, len(self.merged.parts)) if self.merged else 1

    @property
    def coordinates(self) -> Coordinates:
        """Where it is in the run."""
        if self.merged is not None:
            return self.merged.coordinates
        return Coordinates(self.step, self.rank, self.token, self.micro_step)


class NodeBlockEntry(Entry):
    """Nodes of an indexed slice that ran one after the other, with their tensors, packed.

    Attributes:
        first: order of the first of them.
        names: of the name of each a check sum of four bytes, by which it is found.
        dtypes: those of their tensors.
        problems: how many of their tensors cannot be compared.
        content: the nodes, as `firstdrift.catalogue.dumps.nodes` packs them.
    """

    __tablename__ = "node_blocks"
    __table_args__ = (
        Index(
            "ix_node_blocks_problems",
            "slice_id",
            sqlite_where=text("problems > 0"),
            postgresql_where=text("problems > 0"),
        ),
    )

    slice_id: Mapped[int] = mapped_column(ForeignKey("slices.id", ondelete="CASCADE"), primary_key=True)
    first: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    names: Mapped[bytes] = mapped_column(LargeBinary)
    dtypes: Mapped[tuple[str, ...]] = mapped_column(Listed(tuple[str, ...]))
    problems: Mapped[int]
    content: Mapped[bytes] = mapped_column(LargeBinary)


class ComputedEntry(Entry):
    """Statistics that were computed from the values of a tensor, because the dump has none of it.

    Attributes:
        summary: what was found; None if the values cannot be read, and `problem` says why.
    """

    __tablename__ = "computed"
    __table_args__ = ({"sqlite_with_rowid": False},)

    slice_id: Mapped[int] = mapped_column(ForeignKey("slices.id", ondelete="CASCADE"), primary_key=True)
    node: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    summary: Mapped[SideSummary | None] = mapped_column(Record(SideSummary))
    problem: Mapped[Message | None] = mapped_column(Said(Message))
