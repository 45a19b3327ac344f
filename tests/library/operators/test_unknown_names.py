import json
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from firstdrift.cli import main
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.operators.unknown import UnknownName, added_up, unknown_messages, unknown_names


def node(type_name: str, kind: NodeKind = NodeKind.API, path: str = "") -> Node:
    return Node(f"{path}.{type_name}", path, kind, type_name, Direction.FORWARD, 0, 0, None, ())


def test_names_that_the_registry_does_not_know_are_counted() -> None:
    nodes = [
        node("Functional.linear"),
        node("Functional.frobnicate"),
        node("Functional.frobnicate"),
        node("Frobnicator", NodeKind.MODULE),
        node("ModuleList", NodeKind.MODULE),
        node("Frobnicator", NodeKind.MODEL),
        node("", NodeKind.MODULE, "layers.0.q_proj"),
        node("", NodeKind.MODULE, "layers.0"),
        node("", NodeKind.MODULE, "layers.0.quux"),
    ]
    found = unknown_names(nodes)
    assert found == (
        UnknownName("Functional.frobnicate", is_operator=True, count=2),
        UnknownName("Frobnicator", is_operator=False, count=1),
        UnknownName("quux", is_operator=False, count=1),
    )
    assert added_up([found, found[:1]])[0].count == 4


def test_unknown_names_are_said_as_messages_the_first_of_many() -> None:
    names = [UnknownName(f"Tensor.op{number}", is_operator=True, count=20 - number) for number in range(10)]
    (message,) = unknown_messages(names)
    assert message.id == "operators.unknown_operators"
    assert message.arguments["nodes"] == sum(one.count for one in names)
    listed = message.arguments["names"]
    assert isinstance(listed, tuple)
    assert len(listed) == 9


def test_inspect_lists_unknown_names(tmp_path: Path) -> None:
    np.save(tmp_path / "layers.0.quux.npy", np.zeros((2, 3), np.float32))
    np.save(tmp_path / "layers.0.q_proj.npy", np.ones((2, 3), np.float32))
    answer = json.loads(CliRunner().invoke(main, ["inspect", str(tmp_path), "--json"]).stdout)
    assert answer["unknown_names"] == [{"name": "quux", "kind": "module", "count": 1}]
    assert "quux (1)" in CliRunner().invoke(main, ["inspect", str(tmp_path)]).stdout
