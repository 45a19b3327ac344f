"""By what a comparison is judged: read from an address or a form, checked, and described.

What judges is loaded by whoever asks first: the server starts without it.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import Comparison, Judging, get_comparison, judging_of
from firstdrift.errors import SettingsError
from firstdrift.verdict.judge import RULES
from firstdrift.verdict.thresholds import ABOUT, DEFAULTS, thresholds_from
from firstdrift.wording.message import Message

_LONGEST_NUMBER: Final = 9

_PARAMETERS: Final = frozenset({"rules", "baseline", "slice", "all", "language"})


def read_judging(given: Mapping[str, str], comparison: Comparison) -> Judging:
    """Read rule set, thresholds and baseline from an address or a form.

    With a rule set they are all there is to it, and what is left out is at its default; without one, they
    change what is in force.

    Raises:
        SettingsError: one of them makes no sense.
    """
    now = judging_of(comparison.options)
    is_whole = bool(given.get("rules"))
    rules = given["rules"] if is_whole else now.rules
    if rules not in RULES:
        raise SettingsError(
            Message.of("server.no_rule_set", name=rules),
            hint=Message.of("server.choose_one_of", names=tuple(RULES)),
        )
    moved = {name: text for name, text in given.items() if name not in _PARAMETERS and text.strip()}
    thresholds = thresholds_from(moved, DEFAULTS if is_whole else now.thresholds)
    kept = None if is_whole or "baseline" in given else now.baseline
    return Judging(rules, thresholds, read_count(given.get("baseline") or None, "baseline") or kept)


def judging_to_try(given: Mapping[str, str], comparison: Comparison, *, sees_others: bool) -> Judging:
    """Read rule set, thresholds and baseline that are only looked at, by somebody who may see no others.

    Raises:
        SettingsError: one of them makes no sense, or the baseline is not to be seen.
    """
    judging = read_judging(given, comparison)
    if not sees_others and judging.baseline not in (None, comparison.options.baseline):
        raise SettingsError(
            Message.of("server.no_other_baseline"), hint=Message.of("server.log_in_to_choose")
        )
    return judging


def judging_to_apply(session: Session, comparison_id: int, fields: Mapping[str, str]) -> tuple[Judging, bool]:
    """Read what a form says a comparison is to be judged by, and whether it is not yet.

    Raises:
        NotInCatalogueError: there is no such comparison.
        SettingsError: it makes no sense, or the baseline cannot be used.
    """
    comparison = get_comparison(session, comparison_id)
    judging = read_judging(fields, comparison)
    is_new = judging != judging_of(comparison.options)
    if is_new:
        require_applicable(session, comparison, judging)
    return judging, is_new


def require_applicable(session: Session, comparison: Comparison, judging: Judging) -> None:
    """Make sure that a comparison can be judged so.

    Raises:
        SettingsError: it cannot, and why.
    """
    from firstdrift.catalogue.comparisons.baselines import require_baseline

    if judging.rules not in RULES:
        raise SettingsError(
            Message.of("server.no_rule_set", name=judging.rules),
            hint=Message.of("server.choose_one_of", names=tuple(RULES)),
        )
    if judging.baseline is not None:
        require_baseline(session, comparison, judging.baseline)


def query_of(judging: Judging, **others: object) -> str:
    """Write what is chosen as the part of an address after the question mark."""
    parameters = {"rules": judging.rules} | {
        name: number_text(value) for name, value in judging.thresholds.moved().items()
    }
    others = {"baseline": judging.baseline} | others
    return urlencode(parameters | {name: value for name, value in others.items() if value is not None})


def rules_object(session: Session, comparison_id: int) -> dict[str, Any]:
    """Describe by what a comparison is judged, and what may be moved.

    Raises:
        NotInCatalogueError: there is no such comparison.
    """
    comparison = get_comparison(session, comparison_id)
    return judging_object(judging_of(comparison.options)) | {
        "rule_sets": list(RULES),
        "limits": [
            {
                "name": name,
                "rules": about.rules,
                "meaning": about.meaning,
                "default": getattr(DEFAULTS, name),
                "least": about.least,
                "most": about.most,
            }
            for name, about in ABOUT.items()
        ],
    }


def judging_object(judging: Judging) -> dict[str, Any]:
    """Describe by what is judged: all thresholds, and those that are not at their defaults."""
    values = {name: getattr(judging.thresholds, name) for name in ABOUT}
    return {
        "rules": judging.rules,
        "thresholds": values,
        "moved": judging.thresholds.moved(),
        "baseline": judging.baseline,
    }


def read_count(text: str | None, name: str) -> int | None:
    """Read a whole number from an address.

    Raises:
        SettingsError: it is none.
    """
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER):
        raise SettingsError(Message.of("server.not_a_number", name=name, text=text[:20]))
    return int(text)


def number_text(value: float) -> str:
    """Write a threshold so that reading it gives the same number."""
    return repr(value).removesuffix(".0")
