"""The languages of the pages.

    template    {{ _('Comparisons') }}                          ─▶  比较
    script      say("Copied")                                   ─▶  已复制
    message     {{ reason | said }}                             ─▶  权重不同

English is what the source says; the others lie in locale/*/LC_MESSAGES/firstdrift.po, read as it is. Messages
are put into words by `firstdrift.wording`.
"""

import gettext
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path

SOURCE = "en"
LANGUAGES = {"en": "English", "zh": "中文"}
"""What can be chosen, each by its own name."""

LOCALE = Path(__file__).parent / "locale"


@dataclass(frozen=True, slots=True)
class Language:
    """What is said in a language for what English says; what is missing is said in English.

    Attributes:
        texts: of templates.
        scripts: of scripts.
    """

    texts: gettext.NullTranslations
    scripts: Mapping[str, str] = field(default_factory=dict)


def choose_language(chosen: str | None, accepted: str) -> str:
    """Decide on a language: what was chosen, else the first that a browser asks for, else English.

    Args:
        chosen: the code of a language, or anything else, which counts as nothing.
        accepted: an Accept-Language header, "zh-CN,zh;q=0.9,en;q=0.8".
    """
    if chosen in LANGUAGES:
        return chosen
    wanted = [part.partition(";")[0].strip() for part in sorted(accepted.split(","), key=_rank)]
    known = (language.partition("-")[0].lower() for language in wanted)
    return next((language for language in known if language in LANGUAGES), SOURCE)


def _rank(part: str) -> float:
    quality = part.partition(";q=")[2]
    return -float(quality) if quality.replace(".", "", 1).isdecimal() else -1.0


@cache
def load_language(code: str) -> Language:
    """Read what is said in a language."""
    if code == SOURCE:
        return Language(gettext.NullTranslations())
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import read_po

    with (LOCALE / code / "LC_MESSAGES" / "firstdrift.po").open("rb") as file:
        catalog = read_po(file, locale=code)
    compiled = BytesIO()
    write_mo(compiled, catalog)
    compiled.seek(0)
    scripts = {
        str(message.id): str(message.string)
        for message in catalog
        if message.string and not message.pluralizable and _is_of_scripts(message.locations)
    }
    return Language(gettext.GNUTranslations(compiled), scripts)


def _is_of_scripts(places: Iterable[tuple[str, int]]) -> bool:
    return any(file.endswith(".js") for file, _ in places)
