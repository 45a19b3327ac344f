"""What names are recognised as: a row for each operator that was added because a dump had it."""

import pytest

from firstdrift.operators.kinds import OpKind, snake_case
from firstdrift.operators.properties import last_part
from firstdrift.operators.recognise import kind_of_type
from firstdrift.operators.registry import operators_named


@pytest.mark.parametrize(
    ("name", "operator", "kind"),
    [
        ("Functional.linear", "linear", OpKind.LINEAR),
        ("aten.addmm", "addmm", OpKind.LINEAR),
        ("npu_swiglu", "gated_activation", OpKind.GATE),
        ("GroupedMatmulOperation", "grouped_matmul", OpKind.GROUPED),
        ("ColumnParallelLinear", "linear", OpKind.LINEAR),
        ("LogitsProcessor", "logits_processor", OpKind.OTHER),
    ],
)
def test_a_name_is_recognised(name: str, operator: str, kind: OpKind) -> None:
    assert operators_named(snake_case(last_part(name)))[0].id == operator
    assert kind_of_type(name) is kind
