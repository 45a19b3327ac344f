"""What a message says, for tests: its id, those of the messages in it, and what stands in their gaps."""

from collections.abc import Iterable, Iterator

from firstdrift.wording.message import Argument, Message


def within(message: Message | None) -> Iterator[Message]:
    """Give a message and all messages in it."""
    if message is not None:
        yield message
        for argument in message.arguments.values():
            for part in argument if isinstance(argument, tuple) else (argument,):
                if isinstance(part, Message):
                    yield from within(part)


def ids_of(message: Message | None) -> set[str]:
    """Return the ids of a message and of those in it."""
    return {part.id for part in within(message)}


def gaps_of(message: Message | None, id: str) -> dict[str, Argument]:  # noqa: A002
    """Return what stands in the gaps of the first message of an id."""
    return next(dict(part.arguments) for part in within(message) if part.id == id)


def ids(messages: Iterable[Message]) -> list[str]:
    """Return the ids of messages, without their room: "reason.same_name"."""
    return [message.id.partition(".")[2] for message in messages]
