"""Every message has a text in every language, with gaps for what it is given."""

import ast
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from firstdrift.wording.text import LANGUAGES, SOURCE, texts

ROOT = Path(__file__).parents[2]
SOURCES = [
    file
    for package in ("firstdrift", "server", "worker", "frontend")
    for file in sorted((ROOT / package).rglob("*.py"))
]


def messages_in(file: Path) -> Iterator[tuple[str, set[str] | None]]:
    """Yield the id of each message that a file makes, with the names it gives; None where they are many."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="Message"), attr="of"),
                args=[ast.Constant(value=str(id_))],
                keywords=keywords,
            ):
                names = {keyword.arg for keyword in keywords}
                yield id_, None if None in names else {name for name in names if name is not None}


def gaps(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def test_every_message_that_is_made_has_a_text_with_its_gaps() -> None:
    made = [(file, *message) for file in SOURCES for message in messages_in(file)]
    assert len(made) > 500
    known = texts(SOURCE)
    lacking = {f"{file.relative_to(ROOT)}: {id_}" for file, id_, _ in made if id_ not in known}
    assert not lacking
    unfilled = {
        f"{file.relative_to(ROOT)}: {id_} {gaps(known[id_]) - names}"
        for file, id_, names in made
        if names is not None and not gaps(known[id_]) <= names
    }
    assert not unfilled


@pytest.mark.parametrize("language", [one for one in LANGUAGES if one != SOURCE])
def test_every_language_has_the_same_messages_with_the_same_gaps(language: str) -> None:
    known, others = texts(SOURCE), texts(language)
    assert known.keys() == others.keys()
    assert {id_ for id_, text in known.items() if not gaps(others[id_]) <= gaps(text)} == set()
