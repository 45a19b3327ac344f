"""By which class a node is shown: of what is propagated, how the error came to it, if its rule tells."""

from typing import Final

BY_RULE: Final = {"class.inside": "begins inside", "class.from_other_ranks": "from other ranks"}
"""The class that is shown, by the rule that decided."""

SHOWN_ALONE: Final = (*BY_RULE.values(),)
"""Classes that are shown, and are no classes of the verdict."""


def shown_class(node_class: str, rule: str | None = None) -> str:
    """Return the class that people are shown."""
    return BY_RULE.get(rule or "", node_class)
