"""What the registry says of an operator; where vocabularies disagreed, both answers are kept."""

import pytest

from firstdrift.operators.kinds import ErrorModel
from firstdrift.operators.paths import (
    is_of_chosen_experts,
    is_shared_expert,
    part_of_layer,
    runs_through_head,
)
from firstdrift.operators.properties import (
    error_model,
    fills,
    hands_on,
    is_commutative,
    is_product,
    is_received,
    leaves_unwritten,
    message_of,
    parameter_positions,
    passes_on,
    role_of_argument,
    sum_over_ranks,
)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("Functional.softmax", ErrorModel.EXPONENTIAL),
        ("Tensor.__iadd__", ErrorModel.ADDITIVE),
        ("iadd", ErrorModel.ADDITIVE),
        ("LayerNormOperation", ErrorModel.CENTRED),
        ("RMSNorm", ErrorModel.SCALED),
        ("leaky_relu", ErrorModel.KINKED),
        ("SiLU", ErrorModel.SMOOTH),
        ("Torch.sigmoid", ErrorModel.SATURATING),
        ("Functional.l1_loss", ErrorModel.DISTANCE),
        ("SmoothL1Loss", ErrorModel.HUBER),
        ("MaxPool2d", ErrorModel.KINKED),
        ("Torch.mean", ErrorModel.AVERAGED),
        ("MixtureOfExperts", ErrorModel.NONE),
        ("RotaryEmbedding", ErrorModel.SMOOTH),
        ("RopeOperation", ErrorModel.NONE),
    ],
)
def test_an_operator_has_the_error_model_of_what_it_is_called(name: str, how: ErrorModel) -> None:
    assert error_model(name) is how


@pytest.mark.parametrize(
    ("call", "positions"),
    [
        ("Functional.linear", {"1", "2"}),
        ("Functional.embedding", {"1"}),
        ("Aten.embedding", {"0"}),
        ("Functional.bilinear", {"2", "3"}),
        ("Functional.batch_norm", {"1", "2", "3", "4"}),
        ("LayerNormOperation", set()),
    ],
)
def test_roles_of_arguments_say_which_are_weights(call: str, positions: set[str]) -> None:
    assert parameter_positions(call) == positions


@pytest.mark.parametrize(
    ("call", "key", "role"),
    [
        ("Functional.batch_norm", "2", "running_var"),
        ("Functional.batch_norm", "5", "training"),
        ("Functional.batch_norm", "running_mean", "running_mean"),
        ("Functional.layer_norm", "2", "weight"),
        ("BatchNorm2d", "weight", "weight"),
        ("BatchNorm2d", "0", ""),
        ("Functional.linear", "7", ""),
    ],
)
def test_an_argument_is_what_its_call_says_or_its_name(call: str, key: str, role: str) -> None:
    assert role_of_argument(call, key) == role


def test_products_are_told_by_type() -> None:
    assert all(
        map(is_product, ("Functional.linear", "Torch.bmm", "MatMulV2", "Conv1D", "QKVLinearSplitPack"))
    )
    assert not any(map(is_product, ("Torch.mm", "Dense", "RMSNorm")))


def test_calls_between_ranks_say_what_they_exchange() -> None:
    assert [message_of(call) for call in ("isend", "recv", "batch_isend_irecv", "all_reduce")] == [
        *("sends", "receives", "several", "")
    ]
    assert sum_over_ranks("Distributed.all_reduce") == "whole"
    assert sum_over_ranks("Distributed.reduce_scatter_tensor") == "part"
    assert sum_over_ranks("Distributed.reduce_scatter") == sum_over_ranks("Tensor.all_reduce") == ""
    assert is_received("Distributed._all_gather_base")
    assert not is_received("Distributed.all_reduce")


def test_what_holds_no_computed_values_is_told() -> None:
    assert leaves_unwritten("Torch.empty_like")
    assert fills("Tensor.masked_fill_")
    assert passes_on("BroadcastTo")
    assert not passes_on("Transpose")
    assert hands_on("ge-aten._unsafe_view.default")
    assert not hands_on("ge-aten.permute.default")
    assert is_commutative("mul")
    assert not is_commutative("sub")


def test_paths_tell_where_something_lies() -> None:
    assert part_of_layer("EncDecAttention") == "cross attention"
    assert part_of_layer("block_sparse_moe") == "mlp"
    assert is_shared_expert("layers.0.mlp.shared_expert.up_proj")
    assert not is_shared_expert("layers.0.mlp.shared_expert_gate")
    assert is_of_chosen_experts("layers.0.mlp.experts.3")
    assert not is_of_chosen_experts("layers.0.mlp.shared_expert_gate")
    assert runs_through_head("Module.lm_head.Linear.forward.0")
    assert not runs_through_head("Module.output.Linear.forward.0")
