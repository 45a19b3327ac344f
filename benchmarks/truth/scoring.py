"""Hold an answer against the truth, and count; nothing here reads a dump."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_LOSSES: Final = ("cross_entropy", "mse_loss", "nll_loss")
Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Named:
    """A node that an answer names."""

    target: str
    golden: str = ""
    module: str | None = None
    cls: str | None = None
    step: int | None = None
    operator: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What was said of a pair."""

    node: Named | None = None
    token: Named | None = None
    inputs: int = 0
    suspects: int = 0
    status: int = 0
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """Whether the place is right, and whether the class is; both are the same for a healthy pair."""

    found: bool
    cls: bool


def score(truth: Mapping[str, Any], answer: Answer) -> Score:
    """Hold an answer against the truth of its pair."""
    if truth["healthy"]:
        quiet = answer.node is None and answer.token is None and not answer.inputs and not answer.suspects
        return Score(quiet, quiet)
    if truth.get("input"):
        return Score(answer.inputs > 0, answer.inputs > 0)
    node = answer.node
    if node is None:
        return Score(found=False, cls=False)
    allowed = node.cls in truth.get("cls", ())
    if truth.get("step") is not None and node.step != truth["step"]:
        return Score(found=False, cls=False)
    found = _is_place(truth, node)
    if truth.get("systematic"):
        found = allowed
    return Score(found, found and allowed)


def _is_place(truth: Mapping[str, Any], node: Named) -> bool:
    module, operators = truth.get("module"), str(truth.get("ops") or "")
    if module is None:  # no module alone is at fault
        return True
    if not module and operators and _is_one_of(node, operators.split("|")):
        return True
    if _is_inside_one(node, truth.get("clean", ())):
        return False
    if truth.get("kind") == "no_residual" and not {"clean", "nodes"} & truth.keys():
        return node.module == module
    if {node.target, node.golden} & set(truth.get("nodes", ())):
        return True
    if _is_inside_one(node, [place for place in (module, *truth.get("also", ())) if place]):
        return True
    return not module and not operators and not node.module and not _is_one_of(node, _LOSSES)


def _is_inside_one(node: Named, places: Sequence[str]) -> bool:
    return any(is_inside(node.module, place) for place in places)


def _is_one_of(node: Named, operators: Sequence[str]) -> bool:
    return any(operator in name for operator in operators for name in (node.target, node.operator or ""))


def is_inside(module: str | None, place: str) -> bool:
    """Tell whether a dotted path is that of a place or of something inside it."""
    return module is not None and (module == place or module.startswith(f"{place}."))


def wilson(hits: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share, by Wilson.

    | hits, of | interval |
    |---|---|
    | 0, 0 | 0 to 1 |
    | 0, 10 | 0 to 0.28 |
    | 10, 10 | 0.72 to 1 |
    """
    if of == 0:
        return (0.0, 1.0)
    z = 1.959964
    share = hits / of
    middle = share + z * z / (2 * of)
    spread = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    whole = 1 + z * z / of
    return (max(0.0, (middle - spread) / whole), min(1.0, (middle + spread) / whole))


def share(hits: int, of: int) -> str:
    """Write a share with its interval."""
    if of == 0:
        return "none"
    low, high = wilson(hits, of)
    return f"{hits}/{of} = {hits / of:.0%} [{low:.0%}-{high:.0%}]".replace("%-", "-")


def table(title: str, results: Sequence[Result], by: Callable[[Result], str]) -> str:
    """Write a table of results, a row for each value that `by` gives."""
    rows = [
        f"| {title} | found (node or inside it) | class right too | healthy: false findings | exit not 0 |"
    ]
    rows.append("|---|---|---|---|---|")
    groups: dict[str, list[Result]] = {}
    for one in results:
        groups.setdefault(by(one), []).append(one)
    rows += [_row(name, groups[name]) for name in sorted(groups)]
    if len(groups) > 1:
        rows.append(_row("**all**", results))
    return "\n".join(rows)


def _row(name: str, results: Iterable[Result]) -> str:
    many = list(results)
    faulty = [one for one in many if not one["healthy"]]
    healthy = [one for one in many if one["healthy"]]
    cells = (
        share(sum(one["found"] for one in faulty), len(faulty)),
        share(sum(one["class right"] for one in faulty), len(faulty)),
        share(sum(not one["found"] for one in healthy), len(healthy)),
        share(sum(one["exit"] != 0 for one in healthy), len(healthy)),
    )
    return f"| {name} | {' | '.join(cells)} |"
