"""What a message says, for tests: by ids, never by wording."""

from collections.abc import Iterator

from firstdrift.wording.message import Message


def ids_of(message: Message | None) -> tuple[str, ...]:
    """Return the ids of a message and of all messages in it, from the outside in."""
    return () if message is None else tuple(_ids(message))


def _ids(message: Message) -> Iterator[str]:
    yield message.id
    for argument in message.arguments.values():
        for inner in argument if isinstance(argument, tuple) else (argument,):
            if isinstance(inner, Message):
                yield from _ids(inner)


def passed_over(*names: str) -> Message:
    """Return what is said of entries of a folder that are not part of a dump."""
    return Message.of("dumps.folder.passed_over", count=len(names), names=names)


def problem_of(file: str, problem: str) -> Message:
    """Return what is said of a file, of which nothing more is said than the id."""
    return Message.of("dumps.file.problem", file=file, problem=Message.of(problem))
