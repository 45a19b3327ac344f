"""Sentences of the library in the language of the page.

The library puts numbers and names into English sentences, which JSON and the command line show as they are.
What they are made of is in the catalogue of translations as patterns with numbered gaps. A sentence that fits
one is said anew from its translation, and what stands in the gaps is said in turn:

    "inputs agree (1.2e-7), output does not (NaN or infinity on one side only)"
        fits  "inputs agree ({0}), output does not ({1})", and
              "NaN or infinity on one side only" is said as the sentence that it is
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache


def _(text: str) -> str:
    return text


SENTENCES = (_("{0}. {1}"), _("{0}."))
"""How sentences follow each other, and how a sentence ends."""

_WORDS = (
    *(_("pass"), _("warning"), _("error"), _("incomparable"), _("unmatched"), _("input differs")),
    *(_("source"), _("weights differ"), _("propagated"), _("amplified"), _("healed"), _("structure differs")),
    *(_("non-finite"), _("clean"), _("input"), _("output"), _("parameter"), _("gradient"), _("recorded")),
    *(_("layer"), _("logits"), _("rank"), _("step"), _("token"), _("micro step"), _("cancelled")),
)
"""Words that stand in the gaps of sentences."""

_JOINTS = ("; ", ": ", ", ")
"""Where a sentence that fits no pattern is cut, to say its parts; the strongest first."""

_GAP = re.compile(r"\{(\d+)\}")

_TELLING = 12
"""Patterns of fewer letters, without a joint, are tried after the joints: "{0} of {1}" fits too much."""


def sayer(patterns: Mapping[str, str]) -> Callable[[str | None], str]:
    """Return a function that says sentences in another language; what it does not know stays as it is.

    Args:
        patterns: English to the language, with gaps {0}, {1}, ... in both.
    """
    return _Sayer(patterns).say if patterns else lambda sentence: sentence or ""


class _Sayer:
    def __init__(self, patterns: Mapping[str, str]) -> None:
        # What says most is tried first: "{0} against {1}" fits nearly everything.
        ordered = sorted(patterns, key=lambda pattern: -len(_GAP.sub("", pattern)))
        gapped = {text: (_expression(text), patterns[text]) for text in ordered if _GAP.search(text)}
        self.patterns = patterns
        self.telling = [pair for text, pair in gapped.items() if _is_telling(text)]
        self.vague = [pair for text, pair in gapped.items() if not _is_telling(text)]
        # What begins with a capital letter is a whole sentence: "Choose one of {0}" takes a list as it is.
        self.whole = [gapped[text] for text in ordered if text in gapped and text[0].isupper()]
        self.joined = {
            joint: [pair for text, pair in gapped.items() if text.startswith(joint)]
            for joint in (*_JOINTS, " ")
        }
        self.sentences = [gapped[text] for text in SENTENCES if text in gapped]
        self.beginnings = [text for text in ordered if " " in text and text not in gapped]
        self.endings = [text for text in self.beginnings if _is_telling(text) and text[0] != " "]
        self.say = lru_cache(maxsize=4096)(self._say)

    def _say(self, sentence: str | None) -> str:
        if not sentence:
            return ""
        if sentence in self.patterns:
            return self.patterns[sentence]
        if (said := self._fill(sentence, self.telling)) is not None:
            return said
        whole = self.sentences if sentence.endswith(".") else self.whole if sentence[0].isupper() else ()
        if (said := self._fill(sentence, whole)) is not None:
            return said
        ended = next((text for text in self.endings if sentence.endswith(f" {text}")), "")
        begins = sentence.removesuffix(f" {ended}")
        if ended and (said := self.say(begins)) != begins:
            return f"{said} {self.patterns[ended]}"
        for joint in _JOINTS:
            if joint in sentence:
                first, *others = sentence.split(joint)
                return self.say(first) + "".join(self._after(joint, other) for other in others)
        begun = next((text for text in self.beginnings if sentence.startswith(f"{text.rstrip()} ")), None)
        if begun is not None:
            rest = f" {sentence[len(begun.rstrip()) + 1 :]}"
            if (said := self._after(" ", rest[1:])) != rest or begun.endswith(" "):
                return self.patterns[begun].rstrip() + said
        return sentence if (said := self._fill(sentence, self.vague)) is None else said

    def _fill(self, sentence: str, tried: Iterable[tuple[re.Pattern[str], str]]) -> str | None:
        for expression, translation in tried:
            if found := expression.fullmatch(sentence):
                gaps = {int(name[1:]): self.say(text) for name, text in found.groupdict().items()}
                return translation.format(*(gaps[number] for number in range(len(gaps))))
        return None

    def _after(self, joint: str, text: str) -> str:
        """Say a part with what joins it to the part before, if that is known; else on its own."""
        together = joint + text
        if together in self.patterns:
            return self.patterns[together]
        said = self._fill(together, self.joined[joint])
        return joint + self.say(text) if said is None else said


def _is_telling(pattern: str) -> bool:
    text = _GAP.sub("", pattern)
    return sum(map(str.isalpha, text)) >= _TELLING or any(joint in text for joint in _JOINTS)


def _expression(pattern: str) -> re.Pattern[str]:
    """Make an expression of a pattern: its gaps take whatever fits, the shorter the better."""
    pieces = _GAP.split(pattern)
    texts = [re.escape(text.replace("{{", "{").replace("}}", "}")) for text in pieces[::2]]
    gaps = [f"(?P<g{number}>.*?)" for number in pieces[1::2]]
    parts = (part for pair in zip(texts, [*gaps, ""], strict=True) for part in pair)
    return re.compile("".join(parts), re.DOTALL)
