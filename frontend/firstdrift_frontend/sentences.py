"""Sentences of the library in the language of the page.

The library puts numbers and names into English sentences. What they are made of is listed in `PATTERNS`: a
sentence that fits one is said anew from its translation, and what stands in its gaps is said in turn, so that
"parameter weight differs (relative L2 2.0); inputs agree (1.2e-7)" needs no pattern of its own.

    "its output differs by 0.3 beyond rounding"
        fits  "its output differs by {error} beyond rounding"  ─▶  "输出差异 {error} 超出舍入误差"
"""

import gettext
import re
from collections.abc import Callable
from functools import cache

PARTS = ("; ", ": ", ", ")
"""Where a sentence that fits no pattern is cut to say its parts, the strongest first."""


def _(pattern: str) -> str:
    return pattern


PATTERNS: tuple[str, ...] = ()
"""What the library says, with names for what it puts in. Longer ones are tried first."""


def said(sentence: str, translations: gettext.NullTranslations) -> str:
    """Say a sentence of the library in a language; what is not known stays English."""
    if type(translations) is gettext.NullTranslations or not sentence:
        return sentence
    translated = translations.gettext(sentence)
    if translated != sentence:
        return translated
    for pattern, expression in _compiled():
        if found := expression.fullmatch(sentence):
            gaps = {name: said(text, translations) for name, text in found.groupdict().items()}
            return translations.gettext(pattern).format(**gaps)
    for mark in PARTS:
        if mark in sentence:
            return mark.join(said(part, translations) for part in sentence.split(mark))
    return sentence


def sayer(translations: gettext.NullTranslations) -> Callable[[str | None], str]:
    """Return a function that says sentences in a language, for templates."""

    def say(sentence: str | None) -> str:
        return said(sentence or "", translations)

    return say


@cache
def _compiled() -> tuple[tuple[str, re.Pattern[str]], ...]:
    ordered = sorted(PATTERNS, key=lambda pattern: -len(re.sub(r"\{\w+\}", "", pattern)))
    return tuple((pattern, _expression(pattern)) for pattern in ordered if "{" in pattern)


def _expression(pattern: str) -> re.Pattern[str]:
    """Make "differs by {error}" into an expression; a name that occurs twice must be the same twice."""
    pieces, seen = [], set[str]()
    for text, gap in re.findall(r"([^{]*)(?:\{(\w+)\})?", pattern):
        pieces.append(re.escape(text))
        if gap:
            pieces.append(f"(?P={gap})" if gap in seen else f"(?P<{gap}>.+?)")
            seen.add(gap)
    return re.compile("".join(pieces), re.DOTALL)
