"""Sentences of the library in the language of the page.

The library puts numbers and names into English sentences, which JSON and the command line show as they are.
What they are made of is in the catalogue of translations as patterns with numbered gaps. A sentence that fits
one is said anew from its translation, and what stands in the gaps is said in turn:

    "inputs agree (1.2e-7), output does not (NaN or infinity on one side only)"
        fits  "inputs agree ({0}), output does not ({1})", and
              "NaN or infinity on one side only" is said as the sentence that it is
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

_JOINTS = ("; ", ": ", ", ")
"""Where a sentence that fits no pattern is cut, to say its parts; the strongest first."""

_GAP = re.compile(r"\{(\d+)\}")


def sayer(patterns: Mapping[str, str]) -> Callable[[str | None], str]:
    """Return a function that says sentences in another language; what it does not know stays as it is.

    Args:
        patterns: English to the language, with gaps {0}, {1}, ... in both.
    """
    if not patterns:
        return lambda sentence: sentence or ""
    # What says most is tried first: "{0} against {1}" fits nearly everything.
    ordered = sorted(patterns, key=lambda pattern: -len(_GAP.sub("", pattern)))
    expressions = [(_expression(pattern), patterns[pattern]) for pattern in ordered if _GAP.search(pattern)]

    @lru_cache(maxsize=4096)
    def say(sentence: str | None) -> str:
        if not sentence:
            return ""
        if sentence in patterns:
            return patterns[sentence]
        for expression, translation in expressions:
            if found := expression.fullmatch(sentence):
                gaps = {int(name[1:]): say(text) for name, text in found.groupdict().items()}
                return translation.format(*(gaps[number] for number in range(len(gaps))))
        for joint in _JOINTS:
            if joint in sentence:
                return joint.join(map(say, sentence.split(joint)))
        return sentence

    return say


def _expression(pattern: str) -> re.Pattern[str]:
    """Make an expression of a pattern: its gaps take whatever fits, the shorter the better."""
    pieces = _GAP.split(pattern)
    texts = [re.escape(text.replace("{{", "{").replace("}}", "}")) for text in pieces[::2]]
    gaps = [f"(?P<g{number}>.*?)" for number in pieces[1::2]]
    parts = (part for pair in zip(texts, [*gaps, ""], strict=True) for part in pair)
    return re.compile("".join(parts), re.DOTALL)
