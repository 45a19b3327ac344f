"""Parts that many messages have in common: a side, a shape, ranks."""

from collections.abc import Iterable, Iterator, Sequence

from firstdrift.wording.message import Argument, Message


def side_named(name: str) -> Message:
    """Name a side: "golden" or "target"."""
    return Message.of("side.golden") if name == "golden" else Message.of("side.target")


def shape(sizes: Sequence[int]) -> Message:
    """Write a shape: "[2, 896]"."""
    return Message.of("shape", sizes=tuple(sizes))


def roles_named(roles: Iterable[str]) -> tuple[Message, ...]:
    """Name roles of tensors, in one order."""
    return tuple(Message.of(f"role.{role}") for role in sorted(map(str, roles)))


def ranks_named(ranks: Iterable[int]) -> str:
    """Write ranks that belong together: "0+1"."""
    return "+".join(map(str, ranks))


def holds(message: Message, part: Message) -> bool:
    """Tell whether a message says another one, or is it."""
    return part in within(message)


def within(message: Message) -> Iterator[Message]:
    """Give a message and all messages in it."""
    yield message
    for argument in message.arguments.values():
        for one in _each(argument):
            if isinstance(one, Message):
                yield from within(one)


def _each(argument: Argument) -> tuple[Argument, ...]:
    return argument if isinstance(argument, tuple | list) else (argument,)
