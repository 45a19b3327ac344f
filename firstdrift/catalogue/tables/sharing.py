"""The tables of links that were given away, and of notes on nodes."""

from datetime import datetime

from sqlalchemy import ForeignKey, LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from firstdrift.catalogue.columns import Now, Record
from firstdrift.catalogue.tables.entry import Entry
from firstdrift.model.slice import Coordinates


class ShareLinkEntry(Entry):
    """A link through which a comparison can be read by whoever has it.

    Attributes:
        digest: SHA-256 of its secret, which is known to nobody but those who were given it.
        label: for whom it is, as its maker says.
        may_write: whether notes may be written through it.
        expires_at: None if never.
        revoked_at: None if it was not.
        seen_at: when it was opened last; None if never.
    """

    __tablename__ = "share_links"

    id: Mapped[int] = mapped_column(primary_key=True)
    comparison_id: Mapped[int] = mapped_column(ForeignKey("comparisons.id", ondelete="CASCADE"), index=True)
    digest: Mapped[bytes] = mapped_column(LargeBinary, unique=True)
    label: Mapped[str] = mapped_column(default="")
    may_write: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime] = mapped_column(default=Now())
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    seen_at: Mapped[datetime | None]


class NodeNoteEntry(Entry):
    """What a person wrote about a node; it stays with the node when results are made again.

    Attributes:
        comparison_id: also for results of match sets that comparison over which they are laid.
        coordinates: of the target slice.
        side: "target" if the target has the node, else "golden".
        node: name of the node on that side.
        author: as they call themselves.
        link_id: through which link it was written; None if by somebody with the token.
        deleted_at: None if it was not deleted.
    """

    __tablename__ = "node_notes"

    id: Mapped[int] = mapped_column(primary_key=True)
    comparison_id: Mapped[int] = mapped_column(ForeignKey("comparisons.id", ondelete="CASCADE"), index=True)
    coordinates: Mapped[Coordinates] = mapped_column(Record(Coordinates))
    side: Mapped[str]
    node: Mapped[str]
    author: Mapped[str]
    text: Mapped[str]
    link_id: Mapped[int | None] = mapped_column(ForeignKey("share_links.id", ondelete="SET NULL"), index=True)
    written_at: Mapped[datetime] = mapped_column(default=Now())
    deleted_at: Mapped[datetime | None]
