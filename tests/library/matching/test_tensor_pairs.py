"""What is promised of pairing the tensors of two matched nodes."""

from pathlib import Path

import pytest
from messages import ids, ids_of
from msgspec.structs import replace

from firstdrift.matching.plan import TensorPair
from firstdrift.matching.ranks.shards import settle_shards
from firstdrift.matching.tensors import TensorPairing, relate_shapes, reshape, shapes_differ
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.tensor import DataLocation, Role, Shards, Statistics, TensorRecord
from firstdrift.wording.message import Message


def tensor(key: str, *shape: int, role: Role = Role.INPUT) -> TensorRecord:
    return TensorRecord(role, key, "float32", shape)


def scalar(key: str, value: str, dtype: str = "int") -> TensorRecord:
    return TensorRecord(Role.INPUT, key, dtype, (), scalar=value)


def node(*tensors: TensorRecord, name: str = "Module.mlp", direction: Direction = Direction.FORWARD) -> Node:
    kind = NodeKind.MODULE if name.startswith("Module.") else NodeKind.API
    return Node(name, name, kind, name, direction, 0, 0, None, tensors)


def pairs_of(golden: Node, target: Node) -> TensorPairing:
    pairing = TensorPairing()
    pairing.pair(7, golden, target)
    return pairing


def said(pairs: list[TensorPair]) -> list[tuple[str, str, str, Message | None]]:
    """Return the keys of pairs, what is done to them, and why they cannot be compared."""
    steps = ("; ".join(ids(pair.transform)).replace("transform.", "") for pair in pairs)
    return [
        (pair.golden.key, pair.target.key, done, pair.incomparable)
        for pair, done in zip(pairs, steps, strict=True)
    ]


@pytest.mark.parametrize(
    ("golden", "target", "transform"),
    [
        ((1, 5, 896), (1, 5, 896), ()),
        ((1, 5, 896), (5, 896), (reshape((1, 5, 896), (5, 896)),)),
        ((5, 896), (1, 5, 896), (reshape((5, 896), (1, 5, 896)),)),
        ((2, 5, 896), (10, 896), (reshape((2, 5, 896), (10, 896)),)),
        ((10, 4, 8), (2, 5, 4, 8), (reshape((10, 4, 8), (2, 5, 4, 8)),)),
        ((2, 1, 5, 8), (10, 8), (reshape((2, 1, 5, 8), (10, 8)),)),
        ((), (1,), (reshape((), (1,)),)),
        ((0, 3), (0, 3), ()),
        (None, (3,), ()),
        ((3,), None, ()),
    ],
)
def test_shapes_that_differ_by_ones_or_by_flattening_are_compared(
    golden: tuple[int, ...] | None, target: tuple[int, ...] | None, transform: tuple[Message, ...]
) -> None:
    assert relate_shapes(golden, target) == (transform, None)


@pytest.mark.parametrize(
    ("golden", "target"),
    [((2, 5), (5, 2)), ((2, 5, 8), (2, 40)), ((3,), (4,)), ((), (2,)), ((2, 16, 64), (16, 2, 64))],
)
def test_other_shapes_are_incomparable_with_both_shapes_named(
    golden: tuple[int, ...], target: tuple[int, ...]
) -> None:
    assert relate_shapes(golden, target) == ((), shapes_differ(golden, target))


def test_tensors_of_one_role_and_key_are_paired_whatever_their_order() -> None:
    pairing = pairs_of(
        node(tensor("0", 2), tensor("weight", 3, role=Role.PARAMETER)),
        node(tensor("weight", 3, role=Role.PARAMETER), tensor("0", 2)),
    )
    assert said(pairing.pairs) == [("weight", "weight", "", None), ("0", "0", "", None)]
    assert {pair.match for pair in pairing.pairs} == {7}


def test_arguments_given_by_position_are_paired_with_those_given_by_keyword() -> None:
    pairing = pairs_of(
        node(tensor("0", 1, 5, 8), tensor("1", 5, 5), scalar("2", "-1")),
        node(tensor("mask", 5, 5), tensor("hidden_states", 5, 8), scalar("dim", "-1")),
    )
    assert said(pairing.pairs) == [
        ("1", "mask", "by_shape", None),
        ("0", "hidden_states", "by_shape; reshape", None),
        ("2", "dim", "by_shape", None),
    ]


def test_queries_keys_and_values_of_one_shape_are_paired_in_order() -> None:
    golden = node(*(tensor(str(at), 4, 8) for at in range(3)))
    target = node(*(tensor(key, 4, 8) for key in ("query", "key", "value")))
    assert said(pairs_of(golden, target).pairs) == [
        (str(at), key, "by_shape", None) for at, key in enumerate(("query", "key", "value"))
    ]


def test_unequally_many_tensors_of_one_shape_are_left_over_rather_than_guessed() -> None:
    pairing = pairs_of(
        node(tensor("0", 4), tensor("1", 4)), node(tensor("a", 4), tensor("b", 4), tensor("c", 4))
    )
    assert pairing.pairs == []
    assert [left.record.key for left in pairing.unmatched_golden] == ["0", "1"]
    assert [left.record.key for left in pairing.unmatched_target] == ["a", "b", "c"]


def test_two_keywords_of_different_names_are_not_taken_for_each_other() -> None:
    pairing = pairs_of(node(tensor("cos", 4)), node(tensor("sin", 4)))
    assert pairing.pairs == []


def test_gradients_in_the_order_of_autograd_are_paired_by_shape() -> None:
    def gradients(*shapes: tuple[int, ...]) -> Node:
        tensors = [tensor(str(at), *shape, role=Role.OUTPUT) for at, shape in enumerate(shapes)]
        return node(*tensors, name="Functional.linear", direction=Direction.BACKWARD)

    pairing = pairs_of(gradients((64,), (16, 64), (64, 32)), gradients((16, 64), (64, 32)))
    assert said(pairing.pairs) == [("1", "0", "by_shape", None), ("2", "1", "by_shape", None)]
    assert [left.record.key for left in pairing.unmatched_golden] == ["0"]


def with_values(key: str, norm: float, role: Role = Role.INPUT) -> TensorRecord:
    statistics = Statistics(maximum=norm / 3, minimum=-norm / 4, mean=norm / 100, norm=norm)
    return replace(tensor(key, 2, 8, role=role), statistics=statistics)


@pytest.mark.parametrize("name", ["Tensor.__mul__", "Torch.add"])
def test_factors_of_one_shape_that_changed_places_are_paired_by_their_values(name: str) -> None:
    golden = node(with_values("0", 4.0), with_values("1", 9.0), name=name)
    target = node(with_values("0", 9.02), with_values("1", 3.99), name=name)
    assert said(pairs_of(golden, target).pairs) == [
        ("1", "0", "exchanged", None),
        ("0", "1", "exchanged", None),
    ]


def test_gradients_of_factors_that_changed_places_are_paired_by_their_values() -> None:
    def gradients(first: float, second: float) -> Node:
        return node(
            with_values("0", 6.0),
            with_values("0", first, Role.OUTPUT),
            with_values("1", second, Role.OUTPUT),
            name="Tensor.__mul__",
            direction=Direction.BACKWARD,
        )

    assert said(pairs_of(gradients(4.0, 9.0), gradients(9.0, 4.0)).pairs) == [
        ("0", "0", "", None),
        ("1", "0", "exchanged", None),
        ("0", "1", "exchanged", None),
    ]


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("Tensor.__mul__", (4.0, 9.0), (4.0, 9.0)),
        ("Tensor.__mul__", (4.0, 4.0), (4.0, 4.0)),
        ("Tensor.__mul__", (4.0, 9.0), (4.1, 30.0)),
        ("Tensor.__mul__", (4.0, 9.0), (9.0, 70.0)),
        ("Tensor.__mul__", (4.0, 9.0), (17.0, 30.0)),
        ("Tensor.__sub__", (4.0, 9.0), (9.0, 4.0)),
    ],
)
def test_what_did_not_change_places_or_may_not_keeps_its_place(
    name: str, first: tuple[float, float], second: tuple[float, float]
) -> None:
    golden, target = (
        node(with_values("0", one), with_values("1", other), name=name) for one, other in (first, second)
    )
    assert said(pairs_of(golden, target).pairs) == [("0", "0", "", None), ("1", "1", "", None)]


def test_factors_that_changed_places_are_paired_by_shape() -> None:
    pairing = pairs_of(
        node(tensor("0", 64), tensor("1", 2, 64), name="Tensor.__mul__"),
        node(tensor("0", 2, 64), tensor("1", 64), name="Tensor.__mul__"),
    )
    assert said(pairing.pairs) == [("1", "0", "by_shape", None), ("0", "1", "by_shape", None)]


def test_operands_that_changed_places_in_a_matrix_product_are_incomparable() -> None:
    pairing = pairs_of(
        node(tensor("0", 3, 64), tensor("1", 2, 64), name="Torch.matmul"),
        node(tensor("0", 2, 64), tensor("1", 3, 64), name="Torch.matmul"),
    )
    assert [pair.incomparable for pair in pairing.pairs] == [
        shapes_differ((3, 64), (2, 64)),
        shapes_differ((2, 64), (3, 64)),
    ]


def test_a_scalar_against_a_tensor_is_incomparable() -> None:
    pairing = pairs_of(node(scalar("0", "2.0", "float")), node(tensor("0")))
    (pair,) = pairing.pairs
    assert pair.incomparable is not None
    assert set(ids_of(pair.incomparable)) == {
        "matching.incomparable.other_kinds",
        "matching.kind.argument",
        "matching.kind.tensor_of_shape",
        "shape",
    }


def test_operators_of_different_names_share_results_but_no_arguments() -> None:
    golden = node(tensor("0", 4, 4), tensor("0", 4, 4, role=Role.OUTPUT), name="Torch.matmul")
    target = node(tensor("0", 4, 4), tensor("0", 4, 4, role=Role.OUTPUT), name="Functional.attention")
    pairing = pairs_of(golden, target)
    assert [pair.golden.label for pair in pairing.pairs] == ["output.0"]
    assert [left.record.label for left in pairing.unmatched_target] == ["input.0"]
    back = [replace(one, direction=Direction.BACKWARD) for one in (golden, target)]
    assert [pair.golden.label for pair in pairs_of(*back).pairs] == ["input.0"]


def test_tensors_missing_on_one_side_are_listed() -> None:
    pairing = pairs_of(node(tensor("0", 4), tensor("0", 4, role=Role.OUTPUT)), node(tensor("0", 4)))
    assert [left.record.label for left in pairing.unmatched_golden] == ["output.0"]
    assert pairing.unmatched_target == []


def test_a_tensor_that_cannot_be_read_is_still_paired() -> None:
    damaged = replace(tensor("0", 4), problem=Message.of("dumps.file.missing"))
    assert [pair.golden.problem for pair in pairs_of(node(damaged), node(tensor("0", 4))).pairs] == [
        Message.of("dumps.file.missing")
    ]


def test_repeated_keys_and_records_lose_nothing() -> None:
    shared = tensor("0", 4)
    pairing = pairs_of(node(shared, shared), node(shared, tensor("1", 5), shared))
    assert len(pairing.pairs) * 2 + len(pairing.unmatched_golden) + len(pairing.unmatched_target) == 5


@pytest.mark.parametrize("said", ["\N{SUPERSCRIPT TWO}", "9" * 5000, "--3", ""])
def test_arguments_of_ranks_that_only_look_like_numbers_are_compared_as_they_are(said: str) -> None:
    held = (TensorRecord(Role.INPUT, "0", "int", (), scalar=said),) * 2
    spread = replace(held[0], shards=Shards((0, 1), held))
    whole = TensorRecord(Role.INPUT, "0", "int", (), scalar="4")
    (settled,) = settle_shards([TensorPair(0, "a", "a", whole, spread)], [])
    assert (settled.target.scalar, settled.incomparable) == (said, None)


def test_how_much_is_read_is_told_whatever_the_dtype_is_called() -> None:
    location = DataLocation(Path("x.pt"), "pt")
    sizes = []
    for dtype in ("float32", "code 7", "(1,", "f4,)", ">,", ""):
        record = TensorRecord(Role.OUTPUT, "0", dtype, (2, 3), location=location)
        sizes.append(TensorPair(0, "a", "a", record, record).data_bytes)
    assert sizes[0] == 48
    assert all(size > 0 for size in sizes)
