"""What golden calls a node stands beside its name in the tree where that is something else."""

import pytest
from msgspec.structs import replace

from firstdrift.model.node import Direction, NodeKind
from firstdrift.verdict.tree import TreeRow
from firstdrift_server.tree.rows import golden_label


@pytest.fixture
def row() -> TreeRow:
    return TreeRow(
        index=0,
        parent=None,
        last=0,
        depth=0,
        order=0,
        label="",
        kind=NodeKind.MODULE,
        type_name="Linear",
        direction=Direction.FORWARD,
        golden=(),
        target=(),
        match=None,
        path=None,
        micro_step=None,
    )


@pytest.mark.parametrize(
    ("label", "target", "golden", "expected"),
    [
        ("wq", ("layers.0.attention.wq",), ("model.layers.0.self_attn.q_proj",), "q_proj"),
        ("norm", ("layers.0.attention.norm",), ("model.layers.0.self_attn.norm",), None),
        ("layers.0", ("layers.0",), ("h.0",), "h.0"),
        (
            "qkv",
            ("Module.a.qkv.Linear.forward.0",),
            ("Module.a.q.Linear.forward.0", "Module.a.k.Linear.forward.0"),
            "q, k",
        ),
        ("linear.20", ("Functional.linear.20.forward",), ("Functional.linear.19.forward",), "linear.19"),
        ("linear.20", ("Functional.linear.20.forward",), ("Functional.linear.20.forward",), None),
        ("only", ("a.only",), (), None),
        ("only", (), ("a.only",), None),
        ("of one part", ("x",), ("y",), None),
    ],
)
def test_what_golden_calls_it(
    row: TreeRow, label: str, target: tuple[str, ...], golden: tuple[str, ...], expected: str | None
) -> None:
    assert golden_label(replace(row, label=label, target=target, golden=golden)) == expected
