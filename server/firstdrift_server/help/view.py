"""What the help page lists: verdicts, classes and terms, each with its meaning."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from firstdrift.verdict.judgement import NodeClass, Verdict
from firstdrift.verdict.shown_classes import SHOWN_ALONE
from firstdrift.wording.message import Message

_VERDICTS: Final = (*Verdict, "unmatched")
_CLASSES: Final = (*NodeClass, *SHOWN_ALONE)
_SAID: Final = ("finding", "in_and_out", "no_fault", "not_located")

TERMS: Final = (
    ("finding", "first_bad_token", "first_bad_node", "cause", "origin", "certainty", "coverage"),
    ("dump", "golden", "target", "slice", "step", "rank", "token", "node", "tensor", "execution_order"),
    ("match", "matched", "unmatched", "doubtful", "pair", "match_set"),
    ("error", "input_error", "output_error", "parameter_error", "amplification", "lower_bound"),
    ("expected", "rounding", "limit", "tie", "overflow"),
    ("verdict", "node_class", "rule_set", "baseline"),
)
"""Terms by what they are about, in the order in which a reader meets them."""


class Meaning(Struct, frozen=True):
    """A word and what it means.

    Attributes:
        name: its value in JSON, by which the page links to it.
        word: what people read.
        meaning: in one line.
    """

    name: str
    word: Message
    meaning: Message


class HelpView(Struct, frozen=True):
    """Everything that the help page says.

    Attributes:
        said: what a comparison says, in sentences.
        verdicts: how a node comes out.
        classes: what a node did to the error.
        terms: by what they are about.
    """

    said: tuple[Message, ...]
    verdicts: tuple[Meaning, ...]
    classes: tuple[Meaning, ...]
    terms: tuple[tuple[Meaning, ...], ...]


def help_view() -> HelpView:
    """List what verdicts, classes and terms mean."""
    return HelpView(
        said=tuple(Message.of(f"help.{name}") for name in _SAID),
        verdicts=_meanings("verdict", map(str, _VERDICTS)),
        classes=_meanings("node_class", map(str, _CLASSES)),
        terms=tuple(_meanings("term", group) for group in TERMS),
    )


def _meanings(room: str, names: Iterable[str]) -> tuple[Meaning, ...]:
    return tuple(_meaning(room, name, name.replace(" ", "_").replace("-", "_")) for name in names)


def _meaning(room: str, name: str, key: str) -> Meaning:
    return Meaning(name, Message.of(f"{room}.{key}"), Message.of(f"{room}_meaning.{key}"))
