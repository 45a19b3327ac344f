"""Fill in the templates; everything that goes in is escaped."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from gettext import NullTranslations
from pathlib import PurePath
from typing import Any
from urllib.parse import urlencode

from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup, escape
from msgspec import Struct
from msgspec.structs import asdict

from firstdrift.paths import encodable, printable, spelt
from firstdrift.strict_json import to_json
from firstdrift.verdict.amplified_by import amplified_by
from firstdrift.verdict.judgement import InputDifference, NodeClass
from firstdrift.verdict.shown_classes import SHOWN_ALONE, shown_class
from firstdrift.wording.message import VERBATIM, Message
from firstdrift.wording.phrases import holds
from firstdrift.wording.text import Piece, pieces_of, rule_text, text_of, word
from firstdrift_frontend import TEMPLATES, assets, numbers
from firstdrift_frontend.languages import LANGUAGES, SOURCE, load_language
from firstdrift_frontend.metric_names import METRICS, write
from firstdrift_frontend.shades import size_of


def render(template: str, language: str = SOURCE, **context: object) -> str:
    """Return a page, or a piece of one, as HTML in a language; names that are no UTF-8 are `spelt`."""
    text = _environment(language).get_template(template).render(context)
    try:
        text.encode()
    except UnicodeEncodeError:
        return encodable(_environment(language, spells=True).get_template(template).render(context))
    return text


def prepare() -> None:
    """Compile the templates, which the first visitor of each page would wait for otherwise."""
    for template in _environment(SOURCE).list_templates():
        _environment(SOURCE).get_template(template)


class _Compiled(BytecodeCache):
    """Keeps compiled templates in memory: they are the same in all languages."""

    def __init__(self) -> None:
        self._code: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if bucket.key in self._code:
            bucket.bytecode_from_string(self._code[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._code[bucket.key] = bucket.bytecode_to_string()


_COMPILED = _Compiled()


class _Environment(Environment):
    """Looks into views, which are dictionaries, before it looks for attributes of theirs, which few are."""

    def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401 (whatever a view holds)
        if type(obj) is dict and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)


@cache
def _environment(language: str, *, spells: bool = False) -> Environment:
    """Make what knows the templates; with `spells` it looks at each value, which nearly no page needs."""
    known = load_language(language)
    texts = known.texts
    environment = _Environment(
        extensions=["jinja2.ext.i18n"],
        loader=FileSystemLoader(TEMPLATES),
        bytecode_cache=None if spells else _COMPILED,
        finalize=_spelt if spells else None,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    # What the extension adds to an environment is known at run time only.
    environment.install_gettext_translations(texts, newstyle=True)  # type: ignore[attr-defined]
    gettext = _quick_gettext(texts)
    environment.filters |= _OF_NUMBERS | {
        "capital": capital,
        "said": partial(said, language=language),
        "words_of": partial(words_of, language=language),
        "unless_in": unless_in,
        "not_yet_in": not_yet_in,
        "pieces": lambda linked: pieces(linked.message, linked.links, language),
        "rule": partial(rule_named, language=language),
        "bar": size_of,
        "strict_json": partial(strict_json, language=language),
        "share": numbers.share,
        "shape": numbers.shape,
        "duration": numbers.duration,
        "moment": partial(moment, texts),
        "query": query,
        "name": name,
        "in_markdown": in_markdown,
        "in_line": in_line,
    }
    environment.tests["finite"] = math.isfinite
    environment.globals |= {
        "gettext": gettext,
        "_": gettext,
        "language": language,
        "languages": LANGUAGES,
        "word": lru_cache(_REMEMBERED)(partial(word, language=language)),
        "words": known.scripts,
        "static": f"/static/{assets.build()}",
        "modules": assets.modules,
        "metrics": METRICS,
        "shown_class": shown_class,
        "class_words": {name: word("node_class", name, language) for name in (*NodeClass, *SHOWN_ALONE)},
        "amplified_by": amplified_by,
        "plotly": f"/static/{assets.plotly_build()}/plotly.min.js",
    }
    return environment


def said(message: Message | str | None, language: str = SOURCE) -> str:
    """Put a message into words, no line of which begins with "%"; a name stays as it is, None is nothing."""
    return whole_numbers(text_of(message, language)) if isinstance(message, Message) else message or ""


def whole_numbers(text: str) -> str:
    """Keep a percent sign on the line of its number."""
    return text.replace(" %", f"{numbers.NO_BREAK}%")


def pieces(message: Message, links: Mapping[str, str], language: str = SOURCE) -> list[Piece]:
    """Put a message into words likewise, some gaps of which are links."""
    return [Piece(whole_numbers(text), address) for text, address in pieces_of(message, links, language)]


def words_of(names: Iterable[str], room: str, language: str = SOURCE) -> list[str]:
    """Name values of an enumeration; what has no name has no word."""
    return [word(room, name, language) if name else "" for name in names]


def capital(text: str) -> str:
    """Begin a sentence with a capital letter, unless it begins with a name: "output.0", "down_proj"."""
    first = text.partition(" ")[0]
    return text if "." in first[:-1] or "_" in first else text[:1].upper() + text[1:]


def unless_in(reasons: Sequence[Message], summary: Message) -> list[Message]:
    """Leave out the reasons that a summary gives already."""
    return [reason for reason in reasons if not holds(summary, reason)]


def not_yet_in(differences: Sequence[InputDifference], summary: Message) -> list[InputDifference]:
    """Leave out the input difference that a summary gives already."""
    return [
        one
        for one in differences
        if not (holds(summary, one.reason) and holds(summary, one.coordinates.name()))
    ]


def rule_named(name: str, language: str = SOURCE) -> str:
    """Say by what rule something was flagged: the text of its reasons, with open gaps."""
    return rule_text("rule.table.earlier" if name == VERBATIM else name, language)


def _spelt(value: object) -> object:
    # What is marked up holds more than one name, and backslashes of its own.
    return spelt(value) if isinstance(value, str | PurePath) and not isinstance(value, Markup) else value


_REMEMBERED = 4096
_NO_NUMBER = Markup('<span class="none">{}</span>').format(numbers.DASH)


def _quick_gettext(known: NullTranslations) -> Callable[..., Markup]:
    """Do as the extension's own function does, but say the same words for the thousandth time from memory."""

    @lru_cache(_REMEMBERED)
    def whole(text: str) -> Markup:
        return Markup(known.gettext(text)) % {}  # noqa: S704 - the texts of templates are our own

    def gettext(text: str, /, **gaps: object) -> Markup:
        return Markup(known.gettext(text)) % gaps if gaps else whole(text)  # noqa: S704 - gaps are escaped

    return gettext


def number(value: float | None, write: Callable[[float | None], str] = numbers.short) -> Markup:
    """Write a number short, with all its digits to hover over and to copy."""
    if value is None:
        return _NO_NUMBER
    exact = numbers.exact(value)  # digits: nothing to escape
    return Markup(f'<data class="num" value="{exact}" title="{exact}">{write(value)}</data>')  # noqa: S704


_OF_NUMBERS: dict[str, Callable[..., str]] = {
    "number": number,
    "factor": partial(number, write=numbers.factor),
    "error": partial(number, write=numbers.error),
    "error_text": numbers.error,
    "error_power": numbers.error_power,
    "metric": lambda value, name: number(value, partial(write, name=name)),
    "metric_text": write,
    "short": numbers.short,
    "exact": numbers.exact,
}
"""The filters that write numbers."""


def ago(known: NullTranslations, then: datetime, now: datetime | None = None) -> str:
    """Say how long ago something was: just now, 5 min ago, 3 h ago, 2 days ago."""
    ngettext = known.ngettext
    seconds = int(max(0.0, ((now or datetime.now(UTC)) - then).total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return ngettext("%(num)d day ago", "%(num)d days ago", days) % {"num": days}
    if hours:
        return ngettext("%(num)d h ago", "%(num)d h ago", hours) % {"num": hours}
    if minutes:
        return ngettext("%(num)d min ago", "%(num)d min ago", minutes) % {"num": minutes}
    return known.gettext("just now")


_EARLIEST = datetime(1980, 1, 2, tzinfo=UTC)
"""An archive that keeps no times has files as old as time: that does not say when they were made."""


def moment(known: NullTranslations, then: datetime) -> Markup:
    """Say how long ago something was, with the exact time to hover over; a dash where none is real."""
    utc = then.astimezone(UTC)
    if utc < _EARLIEST:
        return Markup("\N{EN DASH}")
    return Markup('<time datetime="{}" title="{:%Y-%m-%d %H:%M:%S} UTC">{}</time>').format(
        utc.isoformat(), utc, ago(known, utc)
    )


def query(parameters: Iterable[tuple[str, object]] | dict[str, object]) -> str:
    """Write the part of an address after the question mark; what is None or empty is left out."""
    pairs = parameters.items() if isinstance(parameters, dict) else parameters
    return urlencode([(name, spelt(str(value))) for name, value in pairs if value not in (None, "")])


def name(text: str, *, breaks: bool = True) -> Markup:
    """Write a name from a dump: it may break after dots and slashes, and what cannot be seen is spelt out.

    Copying it gives the name itself, but for characters that only a spelling can show.
    """
    if text.isprintable() or (text := spelt(text)).isprintable():  # as nearly all are
        shown = escape(text)
        return Markup(_BREAKS.sub(r"\g<0><wbr>", str(shown))) if breaks else shown  # noqa: S704 - escaped before
    return Markup("").join(
        Markup("{}<wbr>").format(character)
        if breaks and character in "./_"
        else Markup('<span class="unseen">{}</span>').format(ascii(character)[1:-1])
        if not character.isprintable()
        else character
        for character in text
    )


_BREAKS = re.compile(r"[./_]")


def in_markdown(text: str) -> str:
    """Write a name as code in Markdown, whatever is in it."""
    shown = in_line(text, plain=False)
    ticks = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    space = " " if "`" in shown else ""
    return f"{ticks}{space}{shown}{space}{ticks}"


def in_line(text: str, *, plain: bool = True) -> str:
    """Keep a text on one line of Markdown and inside one cell of a table; plain text starts no markup."""
    text = " ".join(text.splitlines()).replace(numbers.NO_BREAK, " ")
    shown = printable(text).replace("|", "\\|")
    return _MARKUP.sub(r"\\\g<0>", shown) if plain else shown


_MARKUP = re.compile(r"[\\`*\[\]<>](?!\|)|(?<!\w)_|_(?!\w)")


def strict_json(value: object, language: str = SOURCE) -> Markup:
    """Write data into a page for a script to read; nothing in it can end the element it stands in."""
    value = in_words(value, language)
    escapes = {ord(character): f"\\u{ord(character):04x}" for character in "<>&'\u2028\u2029"}
    return Markup(to_json(value).translate(escapes))  # noqa: S704 - escaped as in JavaScript strings


def in_words(value: Any, language: str) -> Any:  # noqa: ANN401 (whatever a view holds)
    """Put the messages among data into words."""
    match value:
        case Message():
            return said(value, language)
        case Struct():
            return in_words(asdict(value), language)
        case Mapping():
            return {name: in_words(item, language) for name, item in value.items()}
        case list() | tuple():
            return [in_words(item, language) for item in value]
    return value
