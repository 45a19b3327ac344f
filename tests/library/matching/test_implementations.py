"""Two implementations of one model, cut, called and laid out otherwise: what is the same is matched.

golden   q_proj k_proj v_proj o_proj, gate_proj act_fn up_proj down_proj, [batch, sequence, hidden]
target   qkv, proj, fc1, act_fn (multiplies as well), fc2, [sequence, batch, hidden], norms that add first
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some
from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.dumps.storage.views import FIRST, LAST, PLUS, SHAPED, SWAPPED
from firstdrift.errors import TensorUnreadableError
from firstdrift.matching.implementations.containers import with_containers
from firstdrift.matching.implementations.views import seen, swapped
from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import MatchingRules, SlicePlan, TensorPair
from firstdrift.metrics.rearrangement import rearranged
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import DataLocation, Role, Statistics, TensorRecord, ViewStep
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.recognise import kind_of

LAYERS, BATCH, LENGTH, HIDDEN, HEADS, INNER = 4, 2, 9, 48, 24, 80


class Module(Struct, frozen=True):
    """A module of a made run: the last parts of its path, its class, and its tensors."""

    path: str
    class_name: str
    tensors: tuple[TensorRecord, ...]


def tensor(role: Role, value: float, *shape: int, key: str = "0") -> TensorRecord:
    """Make a tensor whose statistics are its own: values of one number are the same."""
    norm = 1.0 + value
    return TensorRecord(role, key, "float32", shape, Statistics(norm / 2, -norm / 3, norm / 50, norm))


def module(  # noqa: PLR0917 (a line of a table)
    path: str,
    class_name: str,
    taken: list[float],
    given: list[float],
    sizes: tuple[int, int],
    weight: float = -1.0,
    turned: bool = False,
) -> Module:
    tokens = (LENGTH, BATCH) if turned else (BATCH, LENGTH)
    tensors = [tensor(Role.INPUT, value, *tokens, sizes[0], key=str(at)) for at, value in enumerate(taken)]
    tensors += [tensor(Role.OUTPUT, value, *tokens, sizes[1], key=str(at)) for at, value in enumerate(given)]
    if weight >= 0:
        shape = (sizes[1],) if "Norm" in class_name else sizes[::-1]
        tensors.append(tensor(Role.PARAMETER, weight, *shape, key="weight"))
    return Module(path, class_name, tuple(tensors))


def norm_of(*parts: float) -> float:
    """The value whose norm is that of parts that lie side by side."""
    return float(np.sqrt(sum((1.0 + part) ** 2 for part in parts))) - 1.0


def golden_layer(at: int) -> Iterator[Module]:
    v = 100.0 * at
    around = f"model.layers.{at}"
    yield module(f"{around}.input_layernorm", "LlamaRMSNorm", [v], [v + 1], (HIDDEN, HIDDEN), v + 50)
    for name, value in (("q_proj", 2), ("k_proj", 3), ("v_proj", 4)):
        width = HIDDEN if name == "q_proj" else HEADS
        yield module(
            f"{around}.self_attn.{name}", "Linear", [v + 1], [v + value], (HIDDEN, width), v + 50 + value
        )
    yield module(f"{around}.self_attn.o_proj", "Linear", [v + 5], [v + 6], (HIDDEN, HIDDEN), v + 56)
    yield module(f"{around}.self_attn", "LlamaAttention", [v + 1], [v + 6], (HIDDEN, HIDDEN))
    yield module(
        f"{around}.post_attention_layernorm", "LlamaRMSNorm", [v + 7], [v + 8], (HIDDEN, HIDDEN), v + 58
    )
    yield module(f"{around}.mlp.gate_proj", "Linear", [v + 8], [v + 9], (HIDDEN, INNER), v + 59)
    yield module(f"{around}.mlp.act_fn", "SiLU", [v + 9], [v + 10], (INNER, INNER))
    yield module(f"{around}.mlp.up_proj", "Linear", [v + 8], [v + 11], (HIDDEN, INNER), v + 61)
    yield module(f"{around}.mlp.down_proj", "Linear", [v + 12], [v + 13], (INNER, HIDDEN), v + 63)
    yield module(f"{around}.mlp", "LlamaMLP", [v + 8], [v + 13], (HIDDEN, HIDDEN))
    yield module(around, "LlamaDecoderLayer", [v], [v + 100], (HIDDEN, HIDDEN))


def target_layer(at: int, *, turned: bool) -> Iterator[Module]:
    v = 100.0 * at
    around = f"decoder.layers.{at}"
    before = [v] if at == 0 else [v - 87, v - 93]
    keeps = [v + 1] if at == 0 else [v + 1, v]
    whole, wide = HIDDEN + 2 * HEADS, 2 * INNER
    yield module(f"{around}.norm_in", "RMSNorm", before, keeps, (HIDDEN, HIDDEN), v + 50, turned)
    yield module(
        f"{around}.attention.qkv",
        "ColumnParallelLinear",
        [v + 1],
        [norm_of(v + 2, v + 3, v + 4)],
        (HIDDEN, whole),
        norm_of(v + 52, v + 53, v + 54),
        turned,
    )
    yield module(
        f"{around}.attention.linear_proj",
        "RowParallelLinear",
        [v + 5],
        [v + 6],
        (HIDDEN, HIDDEN),
        v + 56,
        turned,
    )
    yield module(f"{around}.attention", "SelfAttention", [v + 1], [v + 6], (HIDDEN, HIDDEN), -1.0, turned)
    yield module(
        f"{around}.norm_mid", "RMSNorm", [v + 6, v], [v + 8, v + 7], (HIDDEN, HIDDEN), v + 58, turned
    )
    yield module(
        f"{around}.mlp.linear_fc1",
        "ColumnParallelLinear",
        [v + 8],
        [norm_of(v + 9, v + 11)],
        (HIDDEN, wide),
        norm_of(v + 59, v + 61),
        turned,
    )
    yield module(
        f"{around}.mlp.act_fn", "SiluAndMul", [norm_of(v + 9, v + 11)], [v + 12], (wide, INNER), -1.0, turned
    )
    yield module(
        f"{around}.mlp.linear_fc2", "RowParallelLinear", [v + 12], [v + 13], (INNER, HIDDEN), v + 63, turned
    )
    yield module(f"{around}.mlp", "MLP", [v + 8], [v + 13], (HIDDEN, HIDDEN), -1.0, turned)
    yield module(around, "TransformerLayer", before, [v + 13, v + 7], (HIDDEN, HIDDEN), -1.0, turned)


PARTNERS = {
    "input_layernorm": "norm_in",
    "self_attn": "attention",
    "self_attn.q_proj": "attention.qkv",
    "self_attn.k_proj": "attention.qkv",
    "self_attn.v_proj": "attention.qkv",
    "self_attn.o_proj": "attention.linear_proj",
    "post_attention_layernorm": "norm_mid",
    "mlp": "mlp",
    "mlp.gate_proj": "mlp.linear_fc1",
    "mlp.up_proj": "mlp.linear_fc1",
    "mlp.down_proj": "mlp.linear_fc2",
    "": "",
}


def truth() -> set[tuple[str, str]]:
    """All modules that are the same."""
    layers = {
        (f"model.layers.{at}.{one}".rstrip("."), f"decoder.layers.{at}.{other}".rstrip("."))
        for at in range(LAYERS)
        for one, other in PARTNERS.items()
    }
    return layers | {("model.norm", "decoder.final_norm")}


def written(modules: list[Module]) -> Slice:
    """Write modules, which run in this order, as a slice; each hangs at the recorded module around it."""
    paths = {each.path for each in modules}
    nodes = []
    for order, each in enumerate(modules):
        around = each.path
        while around and (around := around.rpartition(".")[0]) not in paths:
            pass
        nodes.append(
            Node(
                each.path,
                each.path,
                NodeKind.MODULE,
                each.class_name,
                Direction.FORWARD,
                0,
                order,
                around or None,
                each.tensors,
            )
        )
    return Slice(SliceListing(Coordinates(step=0), Path("made")), tuple(nodes))


def golden() -> Slice:
    last = module("model.norm", "LlamaRMSNorm", [100.0 * LAYERS], [5001], (HIDDEN, HIDDEN), 5050)
    return written([*chain.from_iterable(map(golden_layer, range(LAYERS))), last])


def target(*, turned: bool = True) -> Slice:
    v = 100.0 * LAYERS
    last = module(
        "decoder.final_norm", "RMSNorm", [v - 87, v - 93], [5001, v], (HIDDEN, HIDDEN), 5050, turned
    )
    layers = [list(target_layer(at, turned=turned)) for at in range(LAYERS)]
    return written([*chain.from_iterable(layers), last])


def plan_of(first: Slice, second: Slice) -> SlicePlan:
    return match_slices(first, second, MatchingRules())


def matched(plan: SlicePlan) -> set[tuple[str, str]]:
    return {
        (one, other)
        for match in plan.matches
        if not match.doubtful
        for one in match.golden
        for other in match.target
    }


def changed(dumped: Slice, scale: dict[str, float] | float, roles: tuple[Role, ...]) -> Slice:
    """Give tensors of some roles other statistics, of named modules or of all."""

    def other(node: Node, record: TensorRecord) -> TensorRecord:
        factor = scale if isinstance(scale, float) else scale.get(node.path, 1.0)
        told = record.statistics
        if record.role not in roles or told is None:
            return record
        numbers = (told.maximum, told.minimum, told.mean, told.norm)
        return replace(record, statistics=Statistics(*((number or 0.0) * factor for number in numbers)))

    nodes = (
        replace(node, tensors=tuple(other(node, record) for record in node.tensors)) for node in dumped.nodes
    )
    return replace(dumped, nodes=tuple(nodes))


def test_all_modules_are_matched_though_nothing_is_called_or_cut_alike() -> None:
    assert matched(plan_of(golden(), target())) == truth()


def test_an_activation_that_multiplies_as_well_is_no_partner_of_one_of_its_name() -> None:
    plan = plan_of(golden(), target())
    assert {name for name in plan.unmatched_golden if name.endswith("act_fn")} == {
        f"model.layers.{at}.mlp.act_fn" for at in range(LAYERS)
    }


@pytest.mark.parametrize("factor", [0.3, 1.7])
def test_a_fault_in_the_first_layer_changes_no_match(factor: float) -> None:
    """All activations differ from there on."""
    second = changed(target(), factor, (Role.INPUT, Role.OUTPUT))
    assert matched(plan_of(golden(), second)) == truth()


@pytest.mark.parametrize("path", ["attention.linear_proj", "mlp.linear_fc1", "norm_mid", "attention.qkv"])
def test_one_wrong_weight_changes_no_match(path: str) -> None:
    second = changed(target(), {f"decoder.layers.1.{path}": 1.5}, (Role.PARAMETER,))
    assert matched(plan_of(golden(), second)) == truth()


@settings(max_examples=25, deadline=None)
@example(seed=5000, share=0.125)
@example(seed=910, share=0.0926).via("layers that lack one norm in one run, the other in the other")
@example(seed=6632, share=0.131).via("a layer that only one run recorded")
@given(seed=some.integers(0, 10_000), share=some.floats(0.0, 0.15))
def test_what_is_left_of_two_runs_is_matched_rightly_or_not_at_all(seed: int, share: float) -> None:
    dice = Random(seed)  # noqa: S311 (no secret)
    sides = [
        replace(each, nodes=tuple(node for node in each.nodes if dice.random() >= share))
        for each in (golden(), target())
    ]
    sides = [
        written([Module(node.path, node.type_name, node.tensors) for node in each.nodes]) for each in sides
    ]
    assert matched(plan_of(*sides)) <= truth()


def pair_at(plan: SlicePlan, node: str, label: str) -> TensorPair:
    return next(pair for pair in plan.pairs if (pair.golden_node, pair.golden.label) == (node, label))


def test_a_norm_that_adds_first_is_given_what_the_other_one_is_given_as_a_sum() -> None:
    pair = pair_at(plan_of(golden(), target()), "model.layers.2.post_attention_layernorm", "input.0")
    assert pair.target.statistics == pair.golden.statistics
    assert "matching.transform.with_residual" in {said.id for said in pair.transform}
    assert pair.incomparable is None


def test_a_layer_that_hands_on_its_residual_apart_gives_the_sum() -> None:
    """The norm after it has added the two: that says what the sum is where no values were saved."""
    pair = pair_at(plan_of(golden(), target()), "model.layers.1", "output.0")
    assert pair.target.statistics == pair.golden.statistics


def test_sequence_and_batch_may_be_exchanged() -> None:
    plan = plan_of(golden(), target())
    assert {pair.incomparable for pair in plan.pairs} == {None}
    pair = pair_at(plan, "model.layers.1.self_attn.o_proj", "output.0")
    assert "matching.transform.by_sequence" in {said.id for said in pair.transform}


def test_runs_of_one_code_are_matched_as_ever() -> None:
    plan = plan_of(golden(), golden())
    assert {match.origin.value for match in plan.matches} == {"exact"}
    assert all(pair.joining is None for pair in plan.pairs)


def test_outputs_are_not_one_quantity_where_something_is_done_in_between() -> None:
    """What the embedding gives is scaled inside here and after it there; the first norm is given the same."""
    scaled = module("model.embed_tokens", "Embedding", [], [0], (HIDDEN, HIDDEN), 7000)
    bare = module("embedding", "VocabParallelEmbedding", [], [6.5], (HIDDEN, HIDDEN), 7000)
    ids = TensorRecord(Role.INPUT, "0", "int64", (BATCH, LENGTH))
    sides = [
        written(
            [
                replace(one, tensors=(ids, *one.tensors)),
                *(Module(node.path, node.type_name, node.tensors) for node in rest.nodes),
            ]
        )
        for one, rest in ((scaled, golden()), (bare, target(turned=False)))
    ]
    pair = pair_at(plan_of(*sides), "model.embed_tokens", "output.0")
    assert pair.incomparable is not None
    assert pair.incomparable.id == "matching.incomparable.other_quantity"


@pytest.mark.parametrize(
    ("weight", "given", "reason"),
    [
        (1.5, 1.0, "matching.incomparable.other_form"),  # 1 + w here, w there
        (1.5, 1.4, None),  # a wrong weight
        (2.0, 1.02, None),  # one that adds little to what is given
        (1.004, 1.0, None),  # one of another format
    ],
)
def test_weights_of_modules_that_give_the_same_may_be_kept_in_other_forms(
    weight: float, given: float, reason: str | None
) -> None:
    name = "decoder.layers.1.norm_in"
    second = changed(changed(target(), {name: weight}, (Role.PARAMETER,)), {name: given}, (Role.OUTPUT,))
    plan = plan_of(golden(), second)
    pair = pair_at(plan, "model.layers.1.input_layernorm", "parameter.weight")
    assert (pair.incomparable and pair.incomparable.id) == reason


def test_what_takes_whole_numbers_and_gives_rows_of_its_weight_is_no_norm() -> None:
    tensors = (
        TensorRecord(Role.INPUT, "0", "int64", (2, 9)),
        TensorRecord(Role.PARAMETER, "weight", "float32", (211, 48)),
        TensorRecord(Role.OUTPUT, "0", "float32", (2, 9, 48)),
    )
    node = Node("a", "a", NodeKind.MODULE, "NormEmbeddings", Direction.FORWARD, 0, 0, None, tensors)
    assert kind_of(node) is OpKind.LOOKUP
    assert kind_of(replace(node, tensors=())) is OpKind.NORM


def test_containers_are_put_in_after_what_they_hold() -> None:
    names = ["a.layers.0.mlp.up", "a.layers.0.mlp.down", "a.layers.1.mlp.up", "a.norm"]
    nodes = [
        Node(name, name, NodeKind.MODULE, "Linear", Direction.FORWARD, 0, at, None, ())
        for at, name in enumerate(names)
    ]
    whole = with_containers(nodes)
    assert [node.path for node in whole] == [
        "a.layers.0.mlp.up",
        "a.layers.0.mlp.down",
        "a.layers.0.mlp",
        "a.layers.0",
        "a.layers.1.mlp.up",
        "a.layers.1.mlp",
        "a.layers.1",
        "a.norm",
        "a",
    ]
    by_name = {node.name: node for node in whole}
    assert by_name[by_name["a.layers.1.mlp.up"].parent or ""].path == "a.layers.1.mlp"


def saved(folder: Path, array: np.ndarray, name: str = "t") -> DataLocation:
    np.save(folder / f"{name}.npy", array)
    return DataLocation(folder / f"{name}.npy", "npy")


def record_of(folder: Path, array: np.ndarray, name: str = "t") -> TensorRecord:
    return TensorRecord(Role.OUTPUT, "0", str(array.dtype), array.shape, location=saved(folder, array, name))


@pytest.mark.parametrize(
    ("first", "second", "of_vocabulary"),
    [
        ((2, 9, 6), (9, 2, 6), False),
        ((2, 3, 9, 4), (2, 9, 3, 4), False),
        ((2, 9, 8), (9, 2, 4, 2), False),
        ((2, 9, 6), (2, 6), True),
        ((4, 6), (5, 6), True),
    ],
)
def test_a_view_lays_one_tensor_out_as_the_other(
    tmp_path: Path, first: tuple[int, ...], second: tuple[int, ...], of_vocabulary: bool
) -> None:
    array = np.arange(np.prod(first), dtype="float32").reshape(first)
    if second == (2, 6):
        other = array[:, -1]
    elif second == (5, 6):
        other = np.concatenate([array, np.ones((1, 6), "float32")])
    else:
        axes = (0, 1) if second[0] == first[1] else (1, 2)
        other = array.swapaxes(*axes).reshape(second)
    found = seen(
        record_of(tmp_path, array, "a"),
        record_of(tmp_path, np.ascontiguousarray(other), "b"),
        of_vocabulary=of_vocabulary,
    )
    assert found is not None
    assert found.golden.location is not None
    assert found.target.location is not None
    both = load_tensor(found.golden.location), load_tensor(found.target.location)
    assert np.array_equal(both[0].ravel(), both[1].ravel())


def test_tensors_of_other_sizes_are_seen_as_nothing(tmp_path: Path) -> None:
    records = [record_of(tmp_path, np.ones(shape, "float32"), str(shape)) for shape in ((2, 9, 6), (2, 9, 7))]
    assert seen(*records) is None


@pytest.mark.parametrize(
    "step",
    [
        ViewStep(SWAPPED, (0, 5)),
        ViewStep(SHAPED, (5, 5)),
        ViewStep(FIRST, (0, 99)),
        ViewStep(LAST, (7,)),
        ViewStep("no such step"),
    ],
)
def test_a_view_that_does_not_fit_says_so(tmp_path: Path, step: ViewStep) -> None:
    location = replace(saved(tmp_path, np.ones((2, 3), "float32")), view=(step,))
    with pytest.raises(TensorUnreadableError) as raised:
        load_tensor(location)
    assert raised.value.message.id == "dumps.tensor.cannot_be_seen_so"


def test_a_bias_that_is_handed_on_is_added(tmp_path: Path) -> None:
    bias = saved(tmp_path, np.array([1, 2, 3], "float32"), "bias")
    location = replace(saved(tmp_path, np.zeros((2, 3), "float32")), view=(ViewStep(PLUS, other=(bias,)),))
    assert load_tensor(location).tolist() == [[1, 2, 3], [1, 2, 3]]


@settings(max_examples=30, deadline=None)
@given(
    heads=some.integers(1, 6), half=some.integers(2, 8), rows=some.integers(1, 5), seed=some.integers(0, 99)
)
def test_halves_of_heads_that_take_turns_are_found(heads: int, half: int, rows: int, seed: int) -> None:
    array = np.random.default_rng(seed).normal(size=(rows, heads * 2 * half))
    whole = array.reshape(rows, heads, 2, half).swapaxes(2, 3).reshape(array.shape)
    assert np.array_equal(rearranged(array, whole)[0], whole)
    assert np.array_equal(rearranged(whole, array)[0], array)


def test_the_longest_row_tells_the_order_where_the_first_is_rounding() -> None:
    """The gradient of the first query: it attends to one key alone, and is zero but for rounding."""
    dice = np.random.default_rng(7)
    array, noise = dice.normal(size=(5, 16)), dice.normal(size=(2, 16))
    whole = array.reshape(5, 2, 2, 4).swapaxes(2, 3).reshape(array.shape)
    array[0], whole[0] = 1e-9 * noise
    moved, said = rearranged(array, whole)
    assert said is not None
    assert np.allclose(moved, whole, atol=1e-8)


def test_what_is_off_by_more_than_rounding_lies_as_its_weight_does() -> None:
    """Of a coarse format, after some layers; what lies otherwise than its weight stays a difference."""
    dice = np.random.default_rng(7)
    weight, array = dice.normal(size=(16, 6)), dice.normal(size=(5, 16))
    order = np.arange(16).reshape(2, 2, 4).swapaxes(1, 2).ravel()
    witnesses = [weight, weight[order]]
    coarse = array[:, order] + 0.03 * dice.normal(size=(5, 16))
    assert np.array_equal(rearranged(array, coarse, lambda: witnesses)[0], array[:, order])
    other = coarse[:, ::-1]
    assert np.array_equal(rearranged(array, other, lambda: witnesses)[0], array)


@settings(max_examples=30, deadline=None)
@given(seed=some.integers(0, 999))
def test_another_order_than_the_known_ones_stays_a_difference(seed: int) -> None:
    dice = np.random.default_rng(seed)
    array = dice.normal(size=(4, 22))
    order = np.concatenate([[1, 0], np.arange(2, 22)])
    joined, said = rearranged(array, array[:, order])
    assert said is None
    assert np.array_equal(joined, array)


def test_a_digest_says_nothing_of_another_order() -> None:
    record = TensorRecord(Role.PARAMETER, "weight", "float32", (2, 3), digest="0123abcd")
    assert swapped(record).digest is None
    assert swapped(record).shape == (3, 2)
