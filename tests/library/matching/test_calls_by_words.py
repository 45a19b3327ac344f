"""Calls of one module that ran in another order are told apart by the words they were given."""

from pathlib import Path

import pytest

from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import MatchingRules
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import Role, TensorRecord

ROTARY = "model.rotary_emb"


def dump(*words: str) -> Slice:
    """Make a slice in which a module is called once with each word; an operator runs in each call."""
    nodes: list[Node] = []

    def add(name: str, path: str, parent: str | None, call: int, *tensors: TensorRecord) -> None:
        kind = NodeKind.API if name.startswith("Tensor.") else NodeKind.MODULE
        nodes.append(
            Node(name, path, kind, "Tensor.cos", Direction.FORWARD, call, len(nodes), parent, tensors)
        )

    given = TensorRecord(Role.OUTPUT, "0", "float32", (1, 5, 32))
    for call, word in enumerate(words):
        module = f"Module.{ROTARY}.Rotary.forward.{call}"
        said = TensorRecord(Role.INPUT, "0", "str", (), scalar=word)
        add(f"Tensor.cos.{call}.forward", "Tensor.cos", module, call, given)
        add(module, ROTARY, "Module.model.Model.forward.0", call, said, given)
    add("Module.model.norm.Norm.forward.0", "model.norm", "Module.model.Model.forward.0", 0, given)
    add("Module.model.Model.forward.0", "model", None, 0, given)
    return Slice(SliceListing(Coordinates(), Path("made")), tuple(nodes))


def matches(golden: Slice, target: Slice) -> dict[str, str]:
    plan = match_slices(golden, target, MatchingRules())
    assert not plan.unmatched_golden
    assert not plan.unmatched_target
    return {match.target[0]: match.golden[0] for match in plan.matches}


def test_calls_in_another_order_are_matched_by_their_words_and_what_is_inside_follows() -> None:
    found = matches(dump("full", "sliding", "chunked"), dump("chunked", "full", "sliding"))
    for target, golden in enumerate((2, 0, 1)):
        assert found[f"Module.{ROTARY}.Rotary.forward.{target}"] == f"Module.{ROTARY}.Rotary.forward.{golden}"
        assert found[f"Tensor.cos.{target}.forward"] == f"Tensor.cos.{golden}.forward"


@pytest.mark.parametrize(
    ("golden", "target"),
    [
        (("full", "sliding"), ("full", "sliding")),
        (("full", "full"), ("full", "full")),
        (("full", "sliding"), ("sliding", "chunked")),
    ],
    ids=["in the same order", "the same words each time", "other words"],
)
def test_else_calls_are_matched_by_their_numbers(golden: tuple[str, ...], target: tuple[str, ...]) -> None:
    assert all(one == other for one, other in matches(dump(*golden), dump(*target)).items())
