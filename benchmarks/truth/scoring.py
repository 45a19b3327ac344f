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
    token: int | None = None
    rank: int | None = None
    certainty: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What was said of a pair."""

    node: Named | None = None
    token: Named | None = None
    inputs: int = 0
    input_ranks: tuple[int | None, ...] = ()
    suspects: int = 0
    status: int = 0
    systematic: tuple[str, ...] = ()
    """Rules of faults that the whole run has."""
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """Whether the place is right, its class, the first bad token and the rank; all one if healthy."""

    found: bool
    cls: bool
    token: bool = True
    rank: bool = True


def score(truth: Mapping[str, Any], answer: Answer) -> Score:
    """Hold an answer against the truth of its pair."""
    if truth["healthy"]:
        said = answer.node or answer.token or answer.inputs or answer.suspects or answer.systematic
        quiet = not said
        return Score(quiet, quiet, quiet, quiet)
    if truth.get("input"):
        return _score_of_input(truth, answer)
    if truth.get("systematic"):
        said = answer.node is None and _is_said(truth["systematic"], answer)
        return Score(said, said, said, said)
    token, rank = _is_token(truth, answer), _is_rank(truth, answer)
    node = answer.node
    if node is None:
        return Score(found=False, cls=False, token=token, rank=rank)
    allowed = node.cls in truth.get("cls", ())
    if truth.get("step") is not None and truth["step"] not in {node.step, node.token}:
        return Score(found=False, cls=False, token=token, rank=rank)
    if truth.get("token") is not None and node.token != truth["token"]:
        return Score(found=False, cls=False, token=token, rank=rank)
    found = _is_place(truth, node)
    return Score(found, found and allowed, token, rank)


def _is_said(rule: str | bool, answer: Answer) -> bool:
    """Tell whether the answer says once what the whole run has; a sample of before does not tell by which."""
    return bool(answer.systematic) if rule is True else f"systematic.{rule}" in answer.systematic


def _score_of_input(truth: Mapping[str, Any], answer: Answer) -> Score:
    """Hold an answer against what the model was given: it is said, and where ranks are known, on which."""
    said = answer.inputs > 0
    if "ranks at fault" not in truth:
        return Score(said, said, said, said)
    rank = set(answer.input_ranks) == set(truth["ranks at fault"])
    return Score(said and answer.node is None, said and answer.node is None, said, rank)


def tells_token(truth: Mapping[str, Any]) -> bool:
    """Tell whether a truth says in which token a fault shows first: not one that the whole run has."""
    is_of_token = "token" in truth or "logits" in truth
    return is_of_token and not (truth["healthy"] or truth.get("input") or truth.get("systematic"))


def _is_token(truth: Mapping[str, Any], answer: Answer) -> bool:
    """Tell whether the first bad token is the one that the fault reaches first, if it reaches logits at all.

    Between the token in which the module is off and the one whose logits are off by more than rounding, any
    is right: it is a matter of how little one calls an error.
    """
    if "logits" not in truth:
        return answer.token is None or "token" not in truth or (answer.token.token or 0) >= truth["token"]
    first = truth.get("token", truth["logits"])
    named = None if answer.token is None else answer.token.token
    return named is not None and first <= named <= truth["logits"]


def _is_rank(truth: Mapping[str, Any], answer: Answer) -> bool:
    """Tell whether the rank at fault is named; where both are, or it cannot be told, one of them or none."""
    if "ranks at fault" not in truth:
        return True
    at_fault, node = truth["ranks at fault"], answer.node
    if node is None:
        return False
    if node.rank is None:
        return len(at_fault) > 1 or bool(truth.get("rank untold"))
    return node.rank in at_fault


def _is_place(truth: Mapping[str, Any], node: Named) -> bool:
    module, operators = truth.get("module"), str(truth.get("ops") or "")
    if module is None:  # no module alone is at fault
        return True
    if not module and operators and _is_one_of(node, operators.split("|")):
        return True
    if node.module is not None and node.module == truth.get("around"):  # nothing inside can be compared
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


def token_table(results: Sequence[Result]) -> str:
    """Write the table of pairs that were written token by token; nothing if there are none."""
    columns = {
        "first bad token right": "token right",
        "node right": "found",
        "class right too": "class right",
    }
    return _own_table("msit", results, columns, lambda one: f"{one['task']}, {one['level']}")


def first_token_table(results: Sequence[Result]) -> str:
    """Write how often the first bad token is right, whatever else was said of its pair.

    Only faults count of which the truth says in which token they show.
    """
    told = [one for one in results if tells_token(one["truth"])]
    healthy = [one for one in results if one["healthy"]]
    if not told:
        return ""
    right = share(sum(one["token right"] for one in told), len(told))
    named = share(sum(one["token"] is not None for one in healthy), len(healthy))
    return (
        "| by itself | right | healthy: a token is named |\n|---|---|---|\n"
        f"| msit first bad token | {right} | {named} |"
    )


def rank_table(results: Sequence[Result]) -> str:
    """Write the table of pairs of several ranks; nothing if there are none."""
    columns = {"rank right": "rank right", "node right": "found", "class right too": "class right"}
    return _own_table("ranks", results, columns, lambda one: str(one["ranks"]))


def _own_table(
    title: str, results: Sequence[Result], columns: Mapping[str, str], by: Callable[[Result], str]
) -> str:
    if not results:
        return ""
    rows = [
        f"| {title} | {' | '.join(columns)} | healthy: false findings |",
        "|---" * (len(columns) + 2) + "|",
    ]
    groups = {name: [one for one in results if by(one) == name] for name in sorted(set(map(by, results)))}
    for name, many in [*groups.items(), ("**all**", list(results))]:
        faulty, healthy = ([one for one in many if one["healthy"] is is_one] for is_one in (False, True))
        cells = [share(sum(one[column] for one in faulty), len(faulty)) for column in columns.values()]
        cells.append(share(sum(not one["found"] for one in healthy), len(healthy)))
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def rotated_table(results: Sequence[Result]) -> str:
    """Write for each fold how right answers are in it and in the others, on which rules were made."""
    columns = ("found, other folds", "found, this fold", "false findings, other folds", "this fold")
    rows = [f"| fold that is scored | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for fold in sorted({one["fold"] for one in results}):
        sides = [[one for one in results if (one["fold"] == fold) is inside] for inside in (False, True)]
        cells = [_found(side) for side in sides] + [_false_findings(side) for side in sides]
        rows.append(f"| {fold} | {' | '.join(cells)} |")
    rows.append(f"| **all** | | {_found(results)} | | {_false_findings(results)} |")
    return "\n".join(rows)


def _found(results: Sequence[Result]) -> str:
    faulty = [one for one in results if not one["healthy"]]
    return share(sum(one["found"] for one in faulty), len(faulty))


def _false_findings(results: Sequence[Result]) -> str:
    healthy = [one for one in results if one["healthy"]]
    return share(sum(not one["found"] for one in healthy), len(healthy))


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


def certainty_table(results: Sequence[Result]) -> str:
    """Write how many of the nodes that were named are right, by how sure the answer was."""
    named = [one for one in results if one["node"] and one["node"].get("certainty")]
    rows = ["| how sure | nodes named | right | of healthy pairs |", "|---|---|---|---|"]
    for level in ("certain", "likely", "suspected"):
        many = [one for one in named if one["node"]["certainty"] == level]
        right = sum(one["found"] and not one["healthy"] for one in many)
        healthy = sum(one["healthy"] for one in many)
        rows.append(f"| {level} | {len(many)} | {share(right, len(many))} | {healthy} |")
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
