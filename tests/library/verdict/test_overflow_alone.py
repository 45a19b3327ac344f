"""Overflow in one dump: which values are bad without another run to tell, and what level a node has."""

import math
from typing import Any

import pytest

from firstdrift.metrics.measurement import SideSummary
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.verdict.overflow_single import find_overflow_alone

FINITE = SideSummary(None, 1.0, -1.0, 0.0, 2.0)
NAN = SideSummary(None, math.nan, math.nan, math.nan, math.nan)
INFINITE = SideSummary(None, math.inf, 0.0, math.inf, math.inf)
MASK = SideSummary(None, 0.0, -math.inf, -math.inf, math.inf)
MASKED_SCORES = SideSummary(None, 3.0, -math.inf, -math.inf, math.inf)
ONLY_THE_MEAN = SideSummary(None, 0.0, -3.4e38, -math.inf, math.inf)

IN, OUT, WEIGHT = Role.INPUT, Role.OUTPUT, Role.PARAMETER


def node(name: str, *tensors: tuple[Role, SideSummary | None], **changes: Any) -> tuple[Node, list[Any]]:  # noqa: ANN401
    records = tuple(TensorRecord(role, str(at), "float32", (2,)) for at, (role, _) in enumerate(tensors))
    known = {"type_name": name, "kind": NodeKind.API, "direction": Direction.FORWARD, "call": 0, "order": 0}
    made = Node(name=name, path=name, parent=None, tensors=records, **(known | changes))
    return made, [values for _, values in tensors]


def levels(*nodes: tuple[Node, list[Any]]) -> list[str | None]:
    found = {each.node: each.level for each in find_overflow_alone(nodes, Coordinates())}
    return [found.get(each.name) for each, _ in nodes]


@pytest.mark.parametrize("bad", [NAN, INFINITE])
@pytest.mark.parametrize("entering", [IN, WEIGHT])
def test_the_levels_are_those_of_msprobe(bad: SideSummary, entering: Role) -> None:
    assert levels(node("a", (entering, bad), (OUT, FINITE))) == ["medium"]
    assert levels(node("a", (entering, bad), (OUT, bad))) == ["high"]
    assert levels(node("a", (entering, FINITE), (OUT, bad))) == ["critical"]
    assert levels(node("a", (entering, FINITE), (OUT, FINITE))) == [None]


@pytest.mark.parametrize(
    "healthy",
    [
        node("Tensor.triu.0", (IN, FINITE), (OUT, MASK)),
        node("Tensor.mul.0", (IN, FINITE), (OUT, ONLY_THE_MEAN)),
        node("Tensor.__add__.0", (IN, FINITE), (IN, MASK), (OUT, MASKED_SCORES)),
        node("Functional.softmax.0", (IN, MASKED_SCORES), (OUT, FINITE)),
        node("Tensor.masked_fill.0", (IN, FINITE), (OUT, MASKED_SCORES), type_name="Tensor.masked_fill"),
        node("Torch.empty.0", (OUT, NAN), type_name="Torch.empty"),
        node("Distributed.recv.0", (IN, NAN), (OUT, FINITE), type_name="Distributed.recv"),
        node("Torch.add.0", (IN, None), (OUT, None)),
    ],
    ids=lambda each: each[0].name,
)
def test_what_every_healthy_model_has_is_none(healthy: tuple[Node, list[Any]]) -> None:
    assert levels(healthy) == [None]


def test_minus_infinity_that_no_mask_explains_is_overflow() -> None:
    assert levels(node("Torch.log.0", (IN, FINITE), (OUT, MASKED_SCORES))) == ["critical"]


def test_a_row_that_is_masked_throughout_makes_nan_of_it() -> None:
    assert levels(node("Functional.softmax.0", (IN, MASKED_SCORES), (OUT, NAN))) == ["critical"]


def test_what_was_received_began_elsewhere() -> None:
    received = node("Distributed.recv.0", (IN, FINITE), (OUT, NAN), type_name="Distributed.recv")
    assert levels(received) == ["high"]


def test_without_inputs_the_first_is_critical_and_what_follows_is_not() -> None:
    assert levels(node("a", (OUT, FINITE)), node("b", (OUT, NAN)), node("c", (OUT, NAN))) == [
        *(None, "critical", "high")
    ]
