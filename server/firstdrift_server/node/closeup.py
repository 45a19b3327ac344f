"""A pair of tensors of a node from near: what is asked for in an address, and what there is to see.

A child process reads the files and looks at them, at most two pairs at a time, whoever asks.
"""

from collections.abc import Collection
from math import sqrt
from typing import Any

from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import get_slice_pair
from firstdrift.catalogue.comparisons.tree import Pair, get_row, pairs_of_row
from firstdrift.errors import FirstdriftError, NotInCatalogueError, SettingsError
from firstdrift.verdict.limit import limit_of_nodes
from firstdrift.verdict.row_errors import role_of
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.node.view import tensor_keys, worst_tensor
from firstdrift_server.parts.addresses import node_address
from firstdrift_server.questions.closeup import PARTS, Asked, Known, look_at


def asked_from(
    tensor: str | int | None = None, down: str = "", across: str = "", at: str = "", heads: str = ""
) -> Asked:
    """Read what an address says; what is empty is not said."""
    index = tuple(_number("at", part) for part in at.split(",")) if at.strip(", ") else None
    numbers = {"down": down, "across": across, "heads": heads.strip()}
    return Asked(
        None if tensor == "" else tensor,
        at=index,
        **{name: _number(name, text) for name, text in numbers.items() if text},
    )


def _number(name: str, text: str) -> int:
    if not (text.strip().isdecimal() and len(text) < 20):  # noqa: PLR2004 - no tensor is larger
        raise SettingsError(
            Message.of("server.not_a_whole_number", name=name, text=text[:40]),
            hint=Message.of("server.give_0_or_more"),
        )
    return int(text)


def closeup_view(
    context: Context,
    place: tuple[int, int, int],
    asked: Asked,
    parts: Collection[str] = PARTS,
) -> dict[str, Any]:
    """Look at a pair of tensors of the node at a place (comparison, position of the slice, row) from near."""
    pair, number, key, limit, known = context.read(_find, place, asked.tensor)
    comparison, position, row = place
    base = {
        "tensor": key,
        "number": number,
        "address": node_address(comparison, position, row),
        "data": f"/api/v1/comparisons/{comparison}/slices/{position}/rows/{row}/tensors/{number}",
        "golden": pair.plan.golden.label,
        "target": pair.plan.target.label,
        "reason": None,
    }
    try:
        found: dict[str, Any] = base | context.look(look_at, known, asked, parts)
    except FirstdriftError as error:
        return base | {"reason": error.message}
    if "map" in found:
        found["map"] |= {"limit": limit, "unit": _unit(pair), "verdict": pair.judgement.verdict}
    return found


def _find(
    session: Session, place: tuple[int, int, int], tensor: str | int | None
) -> tuple[Pair, int, str, float | None, Known]:
    comparison, position, index = place
    slice_pair = get_slice_pair(session, comparison, position)
    row, pairs = get_row(session, slice_pair.id, index), pairs_of_row(session, slice_pair.id, index)
    keys = tensor_keys(pairs)
    number = worst_tensor(row, pairs) if tensor is None else _number_of(tensor, keys)
    if number is None:
        raise NotInCatalogueError(Message.of("server.node_without_pairs"))
    shapes = tuple(side.shape for pair in pairs for side in (pair.plan.golden, pair.plan.target))
    finished = get_comparison(session, comparison).finished_at
    plan, measured = pairs[number].plan, pairs[number].measurement
    known = Known(plan, measured, role_of(plan, row.tree, frozenset()), shapes, finished)
    return pairs[number], number, keys[number], limit_of_nodes([slice_pair.judgement]), known


def _unit(pair: Pair) -> float:
    """Return the difference that is a relative error of 1: the root mean square of golden, if it has one."""
    errors = pair.measurement.errors
    mean = errors.sum_squared_golden / errors.size if errors is not None and errors.size else 0.0
    return sqrt(mean) or 1.0


def _number_of(tensor: str | int, keys: list[str]) -> int:
    if tensor in keys:
        return keys.index(str(tensor))
    if isinstance(tensor, int) and 0 <= tensor < len(keys):
        return tensor
    raise NotInCatalogueError(Message.of("server.no_compared_tensor", tensor=tensor))
