"""By what a comparison is judged: read from an address or a form, checked, and described.

What judges is loaded by whoever asks first: the server starts without it.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import Comparison, Judging, get_comparison, judging_of
from firstdrift.errors import SettingsError
from firstdrift.groups import fields_of, known_items
from firstdrift.verdict.judge import RULES
from firstdrift.verdict.movable_thresholds import ABOUT, DEFAULTS, thresholds_from
from firstdrift.wording.message import Message
from firstdrift_server.validation import read_number, require_known

_PARAMETERS: Final = frozenset({"rules", "baseline", "slice", "all", "language"})


def read_judging(given: Mapping[str, str], comparison: Comparison) -> Judging:
    """Read rule set, thresholds and baseline from an address or a form.

    With a rule set they are all there is to it, and what is left out is at its default; without one, they
    change what is in force.
    """
    now = judging_of(comparison.options)
    is_whole = bool(given.get("rules"))
    rules = given["rules"] if is_whole else now.rules
    require_known(rules, RULES, Message.of("server.no_rule_set", name=rules))
    moved = {name: text for name, text in given.items() if name not in _PARAMETERS and text.strip()}
    thresholds = thresholds_from(moved, DEFAULTS if is_whole else now.thresholds)
    kept = None if is_whole or "baseline" in given else now.baseline
    return Judging(rules, thresholds, read_number(given.get("baseline") or None, "baseline") or kept)


def judging_to_try(given: Mapping[str, str], comparison: Comparison, *, sees_others: bool) -> Judging:
    """Read rule set, thresholds and baseline that are only looked at, by somebody who may see no others."""
    judging = read_judging(given, comparison)
    if not sees_others and judging.baseline not in (None, comparison.options.baseline):
        raise SettingsError(
            Message.of("server.no_other_baseline"), hint=Message.of("server.log_in_to_choose")
        )
    return judging


def judging_to_apply(session: Session, comparison_id: int, fields: Mapping[str, str]) -> tuple[Judging, bool]:
    """Read what a form says a comparison is to be judged by, and whether it is not yet."""
    comparison = get_comparison(session, comparison_id)
    judging = read_judging(fields, comparison)
    is_new = judging != judging_of(comparison.options)
    if is_new:
        require_applicable(session, comparison, judging)
    return judging, is_new


def require_applicable(session: Session, comparison: Comparison, judging: Judging) -> None:
    """Make sure that a comparison can be judged so."""
    from firstdrift.catalogue.comparisons.baselines import require_baseline

    require_known(judging.rules, RULES, Message.of("server.no_rule_set", name=judging.rules))
    if judging.baseline is not None:
        require_baseline(session, comparison, judging.baseline)


def query_of(judging: Judging, **others: object) -> str:
    """Write what is chosen as the part of an address after the question mark."""
    parameters = {"rules": judging.rules} | {
        name: number_text(value) for name, value in judging.thresholds.moved().items()
    }
    others = {"baseline": judging.baseline} | others
    return urlencode(parameters | known_items(others))


def rules_object(session: Session, comparison_id: int) -> dict[str, Any]:
    """Describe by what a comparison is judged, and what may be moved."""
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
    values = fields_of(judging.thresholds, ABOUT)
    return {
        "rules": judging.rules,
        "thresholds": values,
        "moved": judging.thresholds.moved(),
        "baseline": judging.baseline,
    }


def number_text(value: float) -> str:
    """Write a threshold so that reading it gives the same number."""
    return repr(value).removesuffix(".0")
