"""What a message says, for tests: by ids and by what stands in its gaps, never by wording."""

import html
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Formatter

import pytest

from firstdrift.errors import FirstdriftError
from firstdrift.model.slice import Coordinates
from firstdrift.wording.message import Argument, Message
from firstdrift.wording.phrases import within
from firstdrift.wording.text import text_of, texts


def ids_of(message: Message | None) -> tuple[str, ...]:
    """Return the ids of a message and of all messages in it, from the outside in."""
    return () if message is None else tuple(part.id for part in within(message))


def ids(messages: Iterable[Message]) -> list[str]:
    """Return the ids of messages, without their room: "reason.same_name"."""
    return [message.id.partition(".")[2] for message in messages]


def gaps_of(message: Message | None, id: str) -> dict[str, Argument]:  # noqa: A002
    """Return what stands in the gaps of the first message of an id."""
    assert message is not None
    return next(dict(part.arguments) for part in within(message) if part.id == id)


@contextmanager
def refuses(
    kind: type[FirstdriftError],
    id: str,  # noqa: A002
    **gaps: Argument,
) -> Iterator[pytest.ExceptionInfo[FirstdriftError]]:
    """Expect an error whose message, or one in it or in its advice, has an id, and these in its gaps."""
    with pytest.raises(kind) as caught:
        yield caught
    parts = [part for said in (caught.value.message, caught.value.advice) if said for part in within(said)]
    assert id in [part.id for part in parts], caught.value
    filled = [part.arguments for part in parts if part.id == id]
    assert any(gaps.items() <= dict(arguments).items() for arguments in filled), filled


def passed_over(*names: str) -> Message:
    """Return what is said of entries of a folder that are not part of a dump."""
    return Message.of("dumps.folder.passed_over", count=len(names), names=names)


def problem_of(file: str, problem: str) -> Message:
    """Return what is said of a file, of which nothing more is said than the id."""
    return Message.of("dumps.file.problem", file=file, problem=Message.of(problem))


def like(*ids: str) -> str:
    """Return a regular expression that fits the English text of a message, whatever stands in its gaps."""
    return "|".join(_pattern(texts("en")[id_]) for id_ in ids)


def says(text: str, *ids: str) -> bool:
    """Tell whether a text for people, or a page, says a message, whatever stands in its gaps."""
    return re.search(like(*ids), html.unescape(text), re.IGNORECASE) is not None


def stated(page: str) -> list[str]:
    """Return what a page states of its own, by `data-says`, whatever the words are."""
    return re.findall(r'data-says="([^"]*)"', page)


def _pattern(text: str) -> str:
    parts = Formatter().parse(text)
    return "".join(re.escape(part) + ("" if name is None else "(?s:.*?)") for part, name, _, _ in parts)


def complaint(id: str, path: Path) -> str:  # noqa: A002
    """Write what a command that fails says of a file, of which nothing more is said than the id."""
    return f"firstdrift: {text_of(Message.of('error.at', path=str(path), reason=Message.of(id)))}.\n"


def titled(title: str, value: object = "") -> str:
    """Write a row of a report in the terminal, or its begin, as `firstdrift.exports.text` does."""
    return f"{text_of(Message.of(f'terminal.{title}')):<13} {value}"


def titled_within(title: str, value: object = "") -> str:
    """Write a row that belongs to the one before, or its begin."""
    return f"  {text_of(Message.of(f'terminal.{title}')):<11} {value}"


def outline(message: Message) -> str:
    """Write a message by the ends of its ids and what stands in its gaps: "at_line 2 no_value"."""
    words = [message.id.rpartition(".")[2]]
    for argument in message.arguments.values():
        parts = argument if isinstance(argument, tuple) else (argument,)
        words += map(_outlined, parts)
    return " ".join(words)


def outlines(messages: Iterable[Message]) -> list[str]:
    """Write messages as `outline` does."""
    return list(map(outline, messages))


def _outlined(part: Argument) -> str:
    match part:
        case Message():
            return outline(part)
        case float():
            return f"{part:.2g}"
    return str(part)


def place(coordinates: Coordinates) -> str:
    """Write which slice is meant, as no wording changes it: "step 0, rank 0+1"."""
    rank = "+".join(map(str, coordinates.merged)) if coordinates.merged else coordinates.rank
    parts = {
        "step": coordinates.step,
        "rank": rank,
        "token": coordinates.token,
        "micro step": coordinates.micro_step,
    }
    return ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None)
