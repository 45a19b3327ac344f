"""Parts that many messages have in common: a side, a shape, ranks; and texts that are no messages yet."""

from collections.abc import Iterable, Sequence

from firstdrift.wording.message import Message, verbatim


def side_named(name: str) -> Message:
    """Name a side: "golden" or "target"."""
    return Message.of("side.golden") if name == "golden" else Message.of("side.target")


def shape(sizes: Sequence[int]) -> Message:
    """Write a shape: "[2, 896]"."""
    return Message.of("shape", sizes=tuple(sizes))


def ranks_named(ranks: Iterable[int]) -> str:
    """Write ranks that belong together: "0+1"."""
    return "+".join(map(str, ranks))


def as_message(said: Message | str) -> Message:
    """Return a message as it is, and a text that others wrote as one."""
    return verbatim(said) if isinstance(said, str) else said
