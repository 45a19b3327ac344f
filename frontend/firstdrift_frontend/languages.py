"""The languages of the pages.

    template    {{ _('Comparisons') }}                          ─▶  比较
    script      say("Copied")                                   ─▶  已复制
    library     {{ "its weight differs" | said }}               ─▶  权重不同

English is what the source says; the others lie in locale/*/LC_MESSAGES/firstdrift.po, read as it is.
The library speaks English only: JSON, exports and the command line are the same for all.
"""

import gettext
from collections.abc import Mapping
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
        sentences: of the library and of the views, with numbered gaps.
    """

    texts: gettext.NullTranslations
    scripts: Mapping[str, str] = field(default_factory=dict)
    sentences: Mapping[str, str] = field(default_factory=dict)


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
    single = [message for message in catalog if message.id and message.string and not message.pluralizable]
    said = {str(message.id): (str(message.string), message.locations) for message in single}
    return Language(
        gettext.GNUTranslations(compiled),
        {text: other for text, (other, places) in said.items() if _lies_in(places, ".js")},
        {text: other for text, (other, places) in said.items() if _lies_in(places, ".py")},
    )


def _lies_in(places: list[tuple[str, int]], suffix: str) -> bool:
    return any(file.endswith(suffix) for file, _ in places)
