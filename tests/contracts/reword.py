"""Write every English text of a copy of this repository in other letters: only tests of texts may fail there.

    git clone . /tmp/copy && ln -s "$PWD/.venv" /tmp/copy/
    python tests/contracts/reword.py /tmp/copy
    cd /tmp/copy && PYTHONPATH=.:server:worker:frontend .venv/bin/pytest -n 3

Gaps, counts with their nouns, markup, options, paths, and names in capitals stay what they are.
"""

import codecs
import re
import sys
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

COUNTED = re.compile(r"\{(\w*:~?)([^{}|]*)\|([^{}|]*)\}")
STAYS = re.compile(
    r"\{[^{}]*\}|%\(\w+\)[sd]|<[^<>]*>|&\w+;|`[^`]*`|(?<!\w)--?[a-z][\w-]*|[\w./-]*[/_.\\]\w[\w./-]*"
    r"|\bfirstdrift\b|\b\w*\d\w*\b|\b\w*[A-Z]\w*[A-Z]\w*\b"
)
SENTENCE = re.compile(r'^([\w.-]+ = )"((?:[^"\\]|\\.)*)"', re.MULTILINE)


def reworded(text: str) -> str:
    """Return a text in other letters: "{count:node|nodes} differ" becomes "{count:abqr|abqrf} qvssre"."""
    kept = [place for match in STAYS.finditer(text) for place in match.span()]
    parts = [text[start:end] for start, end in zip([0, *kept], [*kept, None], strict=True)]
    parts[::2] = [codecs.encode(part, "rot13") for part in parts[::2]]
    parts[1::2] = [COUNTED.sub(_counted, part) for part in parts[1::2]]
    return "".join(parts)


def _counted(match: re.Match[str]) -> str:
    count, one, many = match.groups()
    return f"{{{count}{codecs.encode(one, 'rot13')}|{codecs.encode(many, 'rot13')}}}"


def reword_messages(wording: Path) -> None:
    """Reword what the library, the worker and the server say."""
    for file in [*(wording / "en").glob("*.toml"), *(wording / "rule_sentences").glob("*.toml")]:
        only = "" if file.parent.name == "en" else "en = "
        file.write_text(
            SENTENCE.sub(
                lambda found, only=only: (
                    f'{found[1]}"{reworded(found[2])}"' if found[1].startswith(only) else found[0]
                ),
                file.read_text("utf-8"),
            ),
            "utf-8",
        )


def reword_pages(frontend: Path) -> None:
    """Have pages read English as the other languages are read, from a file, and reword it there."""
    with (frontend / "locale/zh/LC_MESSAGES/firstdrift.po").open("rb") as file:
        known = read_po(file, locale="zh")
    english = Catalog(locale="en")
    for one in known:
        forms = tuple(map(reworded, one.id)) if one.pluralizable else reworded(one.id)
        english.add(one.id, forms, locations=one.locations, flags=one.flags)
    target = frontend / "locale/en/LC_MESSAGES/firstdrift.po"
    target.parent.mkdir(parents=True)
    with target.open("wb") as file:
        write_po(file, english)
    languages = frontend / "languages.py"
    languages.write_text(languages.read_text("utf-8").replace("if code == SOURCE:", "if not code:"), "utf-8")


if __name__ == "__main__":
    copy = Path(sys.argv[1])
    reword_messages(copy / "firstdrift/wording")
    reword_pages(copy / "frontend/firstdrift_frontend")
