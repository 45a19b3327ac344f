"""A match that would resolve much, as pages show it."""

from msgspec import Struct

from firstdrift.wording.message import Message


class NodeShown(Struct, frozen=True):
    """A node of a match: its whole name, its class, and its path."""

    name: str
    type_name: str
    path: str


class LikelyEntry(Struct, frozen=True, kw_only=True):
    """A match that would resolve much.

    Attributes:
        more_pairs: how many pairs of tensors it adds to those of the matches above it.
        finding: what is said first with it and those above it; None if that stays as it is.
        edit: the match as a field of a form.
        preview: address of the page that shows what it alone would change.
    """

    golden: tuple[NodeShown, ...]
    target: tuple[NodeShown, ...]
    score: float
    more_pairs: int
    finding: Message | None
    edit: str
    preview: str
