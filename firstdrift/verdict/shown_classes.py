"""By which class a node is shown: what its class leaves open, if the rule that decided tells it.

| class             | shown as                                                                              |
| ----------------- | ------------------------------------------------------------------------------------- |
| source            | unexplained input; else origin                                                        |
| propagated        | origin inside; from other ranks                                                       |
| structure differs | argument differs; gradient missing; else, of shapes and operators, as it is           |
"""

from typing import Final

BY_RULE: Final = {
    "class.entered": "unexplained input",
    "class.inside": "begins inside",
    "class.from_other_ranks": "from other ranks",
    "class.argument": "argument differs",
    "class.one_sided_gradient": "gradient missing",
}
"""The class that is shown, by the rule that decided."""

OF_CLASS: Final = {
    "unexplained input": "source",
    "begins inside": "propagated",
    "from other ranks": "propagated",
    "argument differs": "structure differs",
    "gradient missing": "structure differs",
}
"""The class that a node has, by the one that is shown in its place."""

SHOWN_ALONE: Final = (*BY_RULE.values(),)
"""Classes that are shown, and are no classes of the verdict."""


def shown_class(node_class: str, rule: str | None = None) -> str:
    """Return the class that people are shown."""
    shown = BY_RULE.get(rule or "", node_class)
    return shown if OF_CLASS.get(shown) == node_class else node_class
