"""Every text of the pages, and every sentence of the library, has its Chinese."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from string import Formatter

import pytest
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po

from firstdrift.catalogue.comparisons.outline import LEVELS
from firstdrift.catalogue.tables import JobState
from firstdrift.matching.plan import Origin
from firstdrift.metrics.closeup.hint import HintKind
from firstdrift.model.node import Direction, NodeKind
from firstdrift.model.tensor import Role
from firstdrift.verdict.classes import ALL_CLASS_RULES
from firstdrift.verdict.judgement import NodeClass, Verdict
from firstdrift.verdict.movable_thresholds import ABOUT
from firstdrift.verdict.shown_classes import BY_RULE, SHOWN_ALONE
from firstdrift.wording import text as wording
from firstdrift_frontend import STATIC
from firstdrift_frontend.languages import LANGUAGES, LOCALE, SOURCE
from firstdrift_frontend.metric_names import METRICS

PROJECT = Path(__file__).resolve().parents[2]
GAP = re.compile(r"\{\w+\}|%\(\w+\)[sd]")
OTHERS = sorted(set(LANGUAGES) - {SOURCE})


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """What `make messages` would collect now."""
    file = tmp_path_factory.mktemp("messages") / "firstdrift.pot"
    command = [sys.executable, "-m", "babel.messages.frontend", "-q", "extract", "--keywords=say"]
    subprocess.run(
        [*command, "--mapping=frontend/messages.cfg", f"--output={file}", "."],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": "frontend"},
        check=True,
    )
    with file.open("rb") as opened:
        return read_po(opened)


def translated(language: str) -> Catalog:
    with (LOCALE / language / "LC_MESSAGES" / "firstdrift.po").open("rb") as file:
        return read_po(file, locale=language)


def pairs(catalog: Catalog) -> Iterator[tuple[str, str]]:
    """Give each text with its translation, of plural forms each with each."""
    for message in catalog:
        texts = message.id if isinstance(message.id, tuple) else (message.id,)
        others = message.string if isinstance(message.string, tuple | list) else (message.string,)
        yield from ((text, other) for text in texts if text for other in others)


@pytest.mark.parametrize("language", OTHERS)
def test_no_text_lacks_its_translation_and_none_is_left_over(collected: Catalog, language: str) -> None:
    known = translated(language)
    wanted = {message.id for message in collected if message.id}
    there = {message.id for message in known if message.id}
    assert wanted - there == set(), "run `make messages` and write what is missing"
    assert there - wanted == set(), "run `make messages`"
    assert [text for text, other in pairs(known) if not other] == []
    assert not any(message.fuzzy for message in known if message.id)


@pytest.mark.parametrize("language", OTHERS)
def test_every_translation_has_the_gaps_of_its_text(language: str) -> None:
    known = translated(language)
    assert known.num_plurals == 1  # with several forms, a text of one need not name the number
    differing = [
        (text, other)
        for text, other in pairs(known)
        if not set(GAP.findall(other)) <= set(GAP.findall(text))
        or ("{0}" in text and set(GAP.findall(other)) != set(GAP.findall(text)))
    ]
    assert differing == []


@pytest.mark.parametrize(
    "script", sorted(STATIC.rglob("*.js")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_each_text_of_a_script_is_said_where_it_can_be_collected(collected: Catalog, script: Path) -> None:
    # Nothing is collected of a text within another call of the same name, nor of one chosen within the call.
    said = re.findall(r"(?<!function )\bsay\((\"(?:[^\"\\]|\\.)*\")?", script.read_text())
    known = {text for message in collected for text in ([message.id] if isinstance(message.id, str) else [])}
    assert [text for text in said if not text or json.loads(text) not in known] == []


@pytest.mark.parametrize(
    ("room", "words"),
    [
        ("verdict", Verdict),
        ("node_class", (*NodeClass, *SHOWN_ALONE)),
        ("node_class_meaning", SHOWN_ALONE),
        ("kind", NodeKind),
        ("direction", Direction),
        ("role", Role),
        ("origin", Origin),
        ("state", JobState),
        ("hint_kind", HintKind),
        ("level", LEVELS),
        ("threshold", [name for name in ABOUT if not name.startswith("roundoff_")]),
        ("metric", METRICS),
        ("metric_meaning", METRICS),
    ],
)
@pytest.mark.parametrize("language", wording.LANGUAGES)
def test_words_that_data_say_are_in_the_catalogue(room: str, words: Iterable[str], language: str) -> None:
    known = wording.texts(language)
    assert [name for name in words if f"{room}.{re.sub('[ -]', '_', name)}" not in known] == []


def _fields(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("language", sorted(set(wording.LANGUAGES) - {wording.SOURCE}))
def test_every_message_is_there_in_every_language_with_the_same_gaps(language: str) -> None:
    source, other = wording.texts(wording.SOURCE), wording.texts(language)
    assert source.keys() ^ other.keys() == set()
    assert [name for name, text in source.items() if _fields(text) != _fields(other[name])] == []


def test_what_is_shown_in_place_of_a_class_goes_by_rules_that_there_are() -> None:
    assert set(BY_RULE) <= {rule.name for rule in ALL_CLASS_RULES}
