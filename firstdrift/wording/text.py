"""The text of a message in a language.

The catalogue has a text with gaps for each message, as `str.format` has them, and four kinds more:

    {name}                a name or a message as it is; a number with three digits; a list with commas
    {clauses:; }          a list with another joint
    {names: and }         a list with a word before its last: "A, B and C"
    {error:.1%}           any format of `str.format` for numbers
    {error:percent}       a relative error with three digits: "1.48 %", "45.9 %", "1.19e-5 %"
    {count:node|nodes}    a count with its noun, in the number that it asks for: "1 node", "1,234 nodes"
    {count:~is|are}       the word alone
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any, Final, NamedTuple

from firstdrift.tables import tables_of
from firstdrift.wording.message import VERBATIM, Argument, Message
from firstdrift.wording.relative_error import percentage

SOURCE: Final = "en"
LANGUAGES: Final = ("en", "zh")
_HERE: Final = Path(__file__).parent
_NOTHING: Final = "-"
_RULES: Final = "rule"
_RULE_SENTENCES: Final = "rule_sentences"
_PERCENT: Final = "percent"
_PLAIN: Final = 6
"""From this power of ten on, a number is written with its exponent."""
_GAP: Final = "…"
_BEFORE_LAST: Final = frozenset({"and", "or", "和", "或"})
_HAN: Final = "\u2fff"
"""The characters behind this one are Chinese, or stand between Chinese ones."""
_LIST_COMMA: Final = {"en": ", ", "zh": "、"}


def text_of(message: Message, language: str = SOURCE) -> str:
    """Put a message into words.

    A message that the catalogue does not know, as one of a later version, is shown by its id.
    """
    if not message.arguments:
        return _text_without_gaps(message.id, language)
    if message.id == VERBATIM:
        return str(message.arguments["text"])
    pattern = _pattern(message.id, language)
    if pattern is None:
        return " ".join([message.id, *(f"{name}={value}" for name, value in message.arguments.items())])
    formatter = _formatter(language)
    if language == SOURCE or " " not in pattern:
        return formatter.vformat(pattern, (), message.arguments)
    return _closed_up(formatter, pattern, message.arguments)


def _closed_up(formatter: Formatter, pattern: str, arguments: Mapping[str, Argument]) -> str:
    """Fill the gaps; no space stays between Chinese characters, as where a word takes the place of a name."""
    written = ""
    is_word = False
    for text, name, spec, _ in formatter.parse(pattern):
        written += _beside(written, text) if is_word else text
        if name is None:
            continue
        value = arguments[name]
        is_word = isinstance(value, Message)
        filled = formatter.format_field(value, spec or "")
        if is_word and filled[:1] > _HAN and written[:-1][-1:] > _HAN:
            written = written.removesuffix(" ")
        written += filled
    return written


def _beside(before: str, text: str) -> str:
    """Take the space away that a text begins with, if Chinese characters stand around it."""
    return text.removeprefix(" ") if before[-1:] > _HAN and text[1:2] > _HAN else text


@cache
def _text_without_gaps(id: str, language: str) -> str:  # noqa: A002 (as a message's)
    pattern = _pattern(id, language)
    return id if pattern is None else _formatter(language).vformat(pattern, (), {})


class Piece(NamedTuple):
    """A part of a text; with an address it is a link."""

    text: str
    address: str | None = None


def pieces_of(message: Message, links: Mapping[str, str], language: str = SOURCE) -> list[Piece]:
    """Put a message into words of which the gaps that are named are links.

    Args:
        message: what is said.
        links: addresses by the name of the gap, in the message or in any in it.
        language: of the text.
    """
    pattern = _pattern(message.id, language)
    if pattern is None or message.id == VERBATIM:
        return [Piece(text_of(message, language))]
    formatter, found = _formatter(language), list[Piece]()
    is_word = False
    for text, name, spec, _ in formatter.parse(pattern):
        said = [Piece(text)] if text else []
        found = _closed_up_pieces(found, said) if is_word else [*found, *said]
        if not name:
            continue
        argument = message.arguments[name]
        is_word = isinstance(argument, Message) and name not in links
        if isinstance(argument, Message) and is_word:
            found = _closed_up_pieces(found, pieces_of(argument, links, language))
        else:
            found.append(Piece(formatter.format_field(argument, spec or ""), links.get(name)))
    return found


def _closed_up_pieces(before: list[Piece], after: list[Piece]) -> list[Piece]:
    """Join pieces; no space stays between Chinese characters."""
    if not before or not after:
        return [*before, *after]
    last, first = before[-1], after[0]
    if first.text[:1] > _HAN and last.text[:-1][-1:] > _HAN:
        last = last._replace(text=last.text.removesuffix(" "))
    first = first._replace(text=_beside(last.text, first.text))
    return [*before[:-1], last, first, *after[1:]]


def rule_text(id: str, language: str = SOURCE) -> str:  # noqa: A002 (as a message's)
    """Return what messages of an id have in common: their text, with open gaps."""
    parts = _formatter(language).parse(texts(language).get(id, id))
    return "".join(text + (_GAP if name is not None else "") for text, name, _, _ in parts)


def texts_of(messages: Sequence[Message]) -> list[str]:
    """Put messages into words, one by one."""
    return list(map(text_of, messages))


def word(room: str, name: str, language: str = SOURCE) -> str:
    """Name a value of an enumeration: "source" of the room "class"."""
    return text_of(Message.of(f"{room}.{name.replace(' ', '_').replace('-', '_')}"), language)


@cache
def texts(language: str) -> Mapping[str, str]:
    """Read the texts of a language by message id."""
    found = _texts_of_rules(language)
    for file in sorted(_HERE.joinpath(language).glob("*.toml")):
        found |= _flat(tables_of(file))
    return found


def _pattern(id: str, language: str) -> str | None:  # noqa: A002 (as a message's)
    return texts(language).get(id) or texts(SOURCE).get(id)


def _texts_of_rules(language: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in _HERE.joinpath(_RULE_SENTENCES).glob("*.toml"):
        for kind, sentences in tables_of(file).items():
            found |= {f"{_RULES}.{kind}.{name}": sentence[language] for name, sentence in sentences.items()}
    return found


def _flat(tables: Mapping[str, Any], above: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in tables.items():
        found |= _flat(value, f"{above}{name}.") if isinstance(value, dict) else {above + name: value}
    return found


@cache
def _formatter(language: str) -> Formatter:
    return _Words(language)


class _Words(Formatter):
    """Fills the gaps of a text."""

    def __init__(self, language: str) -> None:
        self._language = language

    def format_field(self, value: Argument, format_spec: str) -> str:
        match value:
            case Message():
                return text_of(value, self._language)
            case tuple() | list():
                parts = [self.format_field(part, "") for part in value]
                return _listed(parts, format_spec, _LIST_COMMA[self._language])
            case str() if format_spec:
                return number(float(value), format_spec)  # "NaN" and "Infinity" come so out of JSON
            case None | str() | bool():
                return _NOTHING if value is None else str(value)
        return number(value, format_spec)


def _listed(parts: Sequence[str], joint: str, comma: str) -> str:
    """Join the parts of a list; "and" and "or" stand before the last alone."""
    if len(parts) > 1 and joint.strip() in _BEFORE_LAST:
        return comma.join(parts[:-1]) + joint + parts[-1]
    return (joint or comma).join(parts)


def number(value: float, format_spec: str = "") -> str:
    """Write a number as texts have it: three digits, exponents short and only where they are needed."""
    if "|" in format_spec:
        return _counted(int(value), format_spec)
    if format_spec == _PERCENT:
        return percentage(value) if math.isfinite(value) else number(value)
    written = format(value, format_spec or (".3g" if isinstance(value, float) else ""))
    mantissa, _, exponent = written.partition("e")
    if not exponent:
        return written
    return f"{float(written):,.0f}" if 0 < int(exponent) < _PLAIN else f"{mantissa}e{int(exponent)}"


def _counted(number: int, forms: str) -> str:
    one, _, many = forms.removeprefix("~").partition("|")
    noun = one if number == 1 else many
    return noun if forms.startswith("~") else f"{number:,} {noun}".strip()
