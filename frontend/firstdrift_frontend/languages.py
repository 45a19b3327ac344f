"""The languages of the pages.

    template    {{ _('Comparisons') }}                  ─▶  比较
    script      say("Copied")                           ─▶  已复制
    library     "inputs agree (1e-7), output does not"  ─▶  the sentence of `sentences.py` that it is made of

English is what the source says; the others lie in locale/*/LC_MESSAGES/firstdrift.po, read as it is.
The library speaks English only: JSON, exports and the command line are the same for all.
"""

import gettext
from functools import cache
from io import BytesIO
from pathlib import Path

SOURCE = "en"
LANGUAGES = {"en": "English", "zh": "中文"}
"""What can be chosen, each by its own name."""

_LOCALE = Path(__file__).parent / "locale"


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
def translations(language: str) -> gettext.NullTranslations:
    """Return what a language says for what English says; for English, and what is missing, English."""
    if language == SOURCE:
        return gettext.NullTranslations()
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import read_po

    compiled = BytesIO()
    with (_LOCALE / language / "LC_MESSAGES" / "firstdrift.po").open("rb") as file:
        write_mo(compiled, read_po(file, locale=language))
    compiled.seek(0)
    return gettext.GNUTranslations(compiled)


@cache
def words_of_scripts(language: str) -> dict[str, str]:
    """Return what scripts say, English to the language; empty for English."""
    if language == SOURCE:
        return {}
    from babel.messages.pofile import read_po

    with (_LOCALE / language / "LC_MESSAGES" / "firstdrift.po").open("rb") as file:
        messages = [message for message in read_po(file, locale=language) if _in_script(message.locations)]
    return {str(message.id): str(message.string) for message in messages if message.string}


def _in_script(locations: list[tuple[str, int]]) -> bool:
    return any(file.endswith(".js") for file, _ in locations)
