"""What names are recognised as: a row for each operator that was added because a dump had it."""

import pytest

from firstdrift.operators.kinds import Work, snake_case
from firstdrift.operators.properties import last_part
from firstdrift.operators.recognise import work_of_type
from firstdrift.operators.registry import operators_named


@pytest.mark.parametrize(
    ("name", "operator", "kind"),
    [
        ("Functional.linear", "linear", Work.LINEAR),
        ("aten.addmm", "addmm", Work.LINEAR),
        ("npu_swiglu", "gated_activation", Work.GATE),
        ("GroupedMatmulOperation", "grouped_matmul", Work.GROUPED),
        ("ColumnParallelLinear", "linear", Work.LINEAR),
        ("LogitsProcessor", "logits_processor", Work.OTHER),
    ],
)
def test_a_name_is_recognised(name: str, operator: str, kind: Work) -> None:
    assert operators_named(snake_case(last_part(name)))[0].id == operator
    assert work_of_type(name) is kind
