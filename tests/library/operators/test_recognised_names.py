"""What names are recognised as: a row for each operator that was added because a dump had it."""

import pytest

from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.kinds import OpKind, snake_case
from firstdrift.operators.properties import last_part
from firstdrift.operators.recognise import kind_of, kind_of_type
from firstdrift.operators.registry import operators_named


@pytest.mark.parametrize(
    ("name", "operator", "kind"),
    [
        ("Functional.linear", "linear", OpKind.LINEAR),
        ("aten.addmm", "addmm", OpKind.LINEAR),
        ("npu_swiglu", "gated_activation", OpKind.GATE),
        ("GroupedMatmulOperation", "grouped_matmul", OpKind.GROUPED),
        ("ColumnParallelLinear", "linear", OpKind.LINEAR),
        ("TELayerNormColumnParallelLinear", "norm_and_linear", OpKind.LINEAR),
        ("LayerNormMLP", "norm_and_feed_forward", OpKind.OTHER),
        ("LayerNormColumnParallelLinear", "norm_and_linear", OpKind.LINEAR),
        ("LogitsProcessor", "logits_processor", OpKind.OTHER),
    ],
)
def test_a_name_is_recognised(name: str, operator: str, kind: OpKind) -> None:
    assert operators_named(snake_case(last_part(name)))[0].id == operator
    assert kind_of_type(name) is kind


def test_what_turns_whole_numbers_into_rows_of_its_weight_is_a_lookup_whatever_its_class() -> None:
    def node_of(taken: TensorRecord) -> Node:
        weight = TensorRecord(Role.PARAMETER, "weight", "float32", (128, 64))
        given = TensorRecord(Role.OUTPUT, "0", "float32", (2, 9, 64))
        tensors = (taken, weight, given)
        kind, direction = NodeKind.MODULE, Direction.FORWARD
        return Node("e", "e", kind, "GemmaNormEmbeddings", direction, 0, 0, None, tensors)

    assert kind_of(node_of(TensorRecord(Role.INPUT, "0", "int64", (2, 9)))) is OpKind.LOOKUP
    assert kind_of(node_of(TensorRecord(Role.INPUT, "0", "float32", (2, 9, 64)))) is OpKind.NORM
