"""The catalogue of messages as patterns, for texts that are finished already.

Databases of earlier versions, and errors of jobs, hold English texts instead of messages. They are put into
the language of a page by the texts of the messages that they once were:

    "{nodes:node|nodes} of {rank}"   ─▶   "{0} node of {1}", "{0} nodes of {1}"
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from functools import cache
from string import Formatter

from firstdrift.wording.text import SOURCE, texts


@cache
def patterns(language: str) -> Mapping[str, str]:
    """Return what English texts are in a language, with numbered gaps on both sides."""
    others = texts(language)
    found: dict[str, str] = {}
    for name, english in texts(SOURCE).items():
        if name in others:
            found |= dict(_numbered(english, others[name]))
    return {text: other for text, other in found.items() if _can_be_found(text)}


def _can_be_found(pattern: str) -> bool:
    gaps = re.findall(r"\{\d+\}", pattern)
    return len(gaps) == len(set(gaps)) and any(map(str.isalpha, pattern))


def _numbered(english: str, other: str) -> Iterator[tuple[str, str]]:
    """Write a pair of texts with numbered gaps, once for each form that its nouns may have."""
    pieces = list(Formatter().parse(english))
    names = [name for _, name, _, _ in pieces if name]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    written = "".join(_gap(piece, numbers, form=1) for piece in Formatter().parse(other))
    counts = [spec for _, name, spec, _ in pieces if name and "|" in (spec or "")]
    for forms in itertools.product((0, 1), repeat=len(counts)):
        chosen = iter(forms)
        text = "".join(
            _gap(piece, numbers, form=next(chosen) if "|" in (piece[2] or "") else 0) for piece in pieces
        )
        yield text, written


def _gap(piece: tuple[str, str | None, str | None, str | None], numbers: Mapping[str, int], form: int) -> str:
    before, name, spec, _ = piece
    text = before.replace("{", "{{").replace("}", "}}") if name else before
    if not name:
        return text
    noun = spec.removeprefix("~").split("|")[form] if spec and "|" in spec else ""
    if spec and spec.startswith("~"):
        return text + noun
    return f"{text}{{{numbers.get(name, 0)}}}" + (f" {noun}" if noun else "")
