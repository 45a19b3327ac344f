"""The tables of match sets and their versions."""

from datetime import datetime

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from firstdrift.catalogue.columns import Now, Record
from firstdrift.catalogue.tables.entry import Entry
from firstdrift.matching.manual.edits import Edit
from firstdrift.matching.manual.mapping import MappingFile


class MatchSetEntry(Entry):
    """What people decided of the matches of a comparison, under a name.

    Attributes:
        comparison_id: over which comparison it is laid.
        version: the version in force; 0 where nothing is decided.
        deleted_at: when it was deleted; None if it was not.
    """

    __tablename__ = "match_sets"
    __table_args__ = (UniqueConstraint("comparison_id", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    comparison_id: Mapped[int] = mapped_column(ForeignKey("comparisons.id", ondelete="CASCADE"))
    name: Mapped[str]
    version: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime] = mapped_column(default=Now())
    deleted_at: Mapped[datetime | None]


class MatchSetVersionEntry(Entry):
    """A version of a match set: what was decided on top of another version; it never changes.

    Attributes:
        version: counts up with every change of the set, also after one was undone.
        parent: the version it was made from; 0 for the comparison as it was found.
        edits: what was decided of nodes.
        mappings: mapping files that were read in.
        results_id: the comparison that holds its results; they are made again if it is gone.
    """

    __tablename__ = "match_set_versions"

    match_set_id: Mapped[int] = mapped_column(
        ForeignKey("match_sets.id", ondelete="CASCADE"), primary_key=True
    )
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    parent: Mapped[int]
    edits: Mapped[tuple[Edit, ...]] = mapped_column(Record(tuple[Edit, ...]))
    mappings: Mapped[tuple[MappingFile, ...]] = mapped_column(Record(tuple[MappingFile, ...]))
    results_id: Mapped[int | None] = mapped_column(
        ForeignKey("comparisons.id", ondelete="SET NULL"), index=True
    )
    made_at: Mapped[datetime] = mapped_column(default=Now())
