"""Find the first token, layer and operator where two runs of a neural network part ways.

>>> import firstdrift
>>> report = firstdrift.compare("golden_dump", "target_dump")
>>> report.summary
'Token 2 is the first bad token; in it model.layers.7.mlp is the first bad node: ...'
>>> report.frame()          # every pair as a row of a pandas frame
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firstdrift.comparison.compare import compare
    from firstdrift.comparison.editable_report import EditableReport as Report
    from firstdrift.comparison.report import Options
    from firstdrift.errors import FirstdriftError
    from firstdrift.matching.manual.edits import match, unmatch
    from firstdrift.matching.plan import MatchingRules

__all__ = ["FirstdriftError", "MatchingRules", "Options", "Report", "compare", "match", "unmatch"]

_HOMES = {
    "compare": "firstdrift.comparison.compare:compare",
    "FirstdriftError": "firstdrift.errors:FirstdriftError",
    "MatchingRules": "firstdrift.matching.plan:MatchingRules",
    "Options": "firstdrift.comparison.report:Options",
    "Report": "firstdrift.comparison.editable_report:EditableReport",
    "match": "firstdrift.matching.manual.edits:match",
    "unmatch": "firstdrift.matching.manual.edits:unmatch",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import a public name when it is first used: a submodule must not pay for all of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, _, own_name = _HOMES[name].partition(":")
    return getattr(import_module(module), own_name)
