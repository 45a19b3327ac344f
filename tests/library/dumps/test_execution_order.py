"""The derived order of execution is the recorded one, and values outrank names."""

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from firstdrift.dumps.execution_order import finish_order, natural_key, takers_of_unmade, value_flows
from firstdrift.dumps.msprobe.reader import MsprobeReader
from firstdrift.model.names import enclosing_paths
from firstdrift.model.node import Direction, NodeKind
from firstdrift.model.tensor import Role, Statistics, TensorRecord
from firstdrift.operators.paths import OPERATOR


def test_numbers_of_any_length_are_sorted() -> None:
    long = "9" * 5000
    names = ["layers.10", "layers.2", f"layers.{long}", "layers.٣", "layers.²"]
    assert sorted(names, key=natural_key)[:3] == ["layers.2", "layers.10", f"layers.{long}"]


RECORDED = [
    "llama_stat_L0_perturb",
    "qwen2_layermap_stat_L0_clean",
    "qwen25vl_layermap_stat_mix",
    "mixtral_stat_mix_perturb",
    "megatron_microstep_stat_mix",
]


@pytest.mark.parametrize("name", RECORDED)
def test_names_alone_order_siblings_as_msprobe_recorded_them(
    unpacked: Callable[[str], Path], name: str
) -> None:
    reader = MsprobeReader()
    dump = reader.open_dump(unpacked(f"msprobe/{name}") / "golden")
    recorded: list[str] = []
    for node in reader.read_slice(dump, dump.slices[0]).nodes:
        is_first_run = node.direction is Direction.FORWARD and node.call == 0
        if is_first_run and node.kind is NodeKind.MODULE and node.path not in recorded:
            recorded.append(node.path)
    children: dict[str | None, list[str]] = defaultdict(list)
    for path in sorted(recorded, key=natural_key):
        children[next((p for p in enclosing_paths(path) if p in recorded), None)].append(path)
    labels = {path: path.rpartition(".")[2] for path in recorded}
    derived, _ = finish_order(children, labels, ())
    for siblings in children.values():
        assert [path for path in derived if path in siblings] == [
            path for path in recorded if path in siblings
        ]


def order(children: dict[str | None, list[str]], flows: set[tuple[str, str]]) -> list[str]:
    names = [name for siblings in children.values() for name in siblings]
    return finish_order(children, {name: name.rpartition(".")[2] for name in names}, flows)[0]


def test_children_come_before_their_parent_in_the_order_listed() -> None:
    assert order({None: ["a", "b"], "a": ["a.x", "a.y"]}, set()) == ["a.x", "a.y", "a", "b"]


def test_unknown_names_keep_their_places_among_known_ones() -> None:
    assert order({None: ["mlp", "foo", "input_layernorm"]}, set()) == ["input_layernorm", "foo", "mlp"]


def test_numbered_layers_are_counted_not_spelled() -> None:
    assert order({None: [f"h.{n}" for n in (10, 2, 1)]}, set()) == ["h.1", "h.2", "h.10"]


def test_a_value_given_and_taken_outranks_the_names() -> None:
    assert order({None: ["input_layernorm", "mlp"]}, {("mlp", "input_layernorm")}) == [
        "mlp",
        "input_layernorm",
    ]


def test_a_flow_that_contradicts_names_and_other_flows_is_left() -> None:
    flows = {("a", "b"), ("b", "c"), ("c", "a")}
    names, kept = finish_order({None: ["a", "b", "c"]}, {name: name for name in "abc"}, flows)
    assert (names, kept) == (["a", "b", "c"], 2)


def test_a_chain_of_flows_against_the_names_is_followed_whatever_its_length() -> None:
    names = [f"n{at}" for at in range(20_000)]
    assert order({None: names}, set(pairwise(reversed(names)))) == names[::-1]


def test_operators_stand_between_projections_and_the_last_one() -> None:
    labels = {"q": "q_proj", "o": "o_proj", "m": OPERATOR}
    assert finish_order({None: ["q", "o", "m"]}, labels, ())[0] == ["q", "m", "o"]


NAMES = "abcdef"


@given(flows=st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES))))
def test_every_node_is_ordered_once_whatever_the_flows(flows: set[tuple[str, str]]) -> None:
    assert sorted(order({None: list(NAMES)}, flows)) == list(NAMES)


@given(ranking=st.permutations(NAMES))
def test_a_complete_chain_of_flows_is_followed(ranking: list[str]) -> None:
    flows = set(pairwise(ranking))
    assert order({None: list(NAMES)}, flows) == ranking


PARENTS = {"root": None, "a": "root", "a.x": "a", "a.y": "a", "b": "root", "c": "root"}


def tensor(role: Role, value: str) -> TensorRecord:
    return TensorRecord(role, "0", "float32", (8,), digest=f"crc32:{ord(value):08x}:64")


def flows_of(**values: str) -> set[tuple[str, str]]:
    """Find the flows of nodes given as `a_x="p>q"`: a.x takes p and gives q."""
    return value_flows(tensors_of(values), PARENTS)


def tensors_of(values: dict[str, str]) -> dict[str, list[TensorRecord]]:
    """Make the tensors of nodes given as `a_x="p>q"`: a.x takes p and gives q."""
    tensors = {}
    for name, text in values.items():
        taken, _, given_ = text.partition(">")
        tensors[name.replace("_", ".")] = [
            *(tensor(Role.INPUT, value) for value in taken),
            *(tensor(Role.OUTPUT, value) for value in given_),
        ]
    return tensors


@pytest.mark.parametrize(
    ("values", "flows"),
    [
        pytest.param({"a": ">p", "b": "p>"}, {("a", "b")}, id="from one sibling to the next"),
        pytest.param({"a_x": ">p", "b": "p>"}, {("a", "b")}, id="from a child to its parent's sibling"),
        pytest.param({"a_x": ">p", "a": ">p", "b": "p>"}, {("a", "b")}, id="through the parent"),
        pytest.param({"a_x": ">p", "a_y": "p>"}, {("a.x", "a.y")}, id="among children"),
        pytest.param({"a_x": ">p", "a": "p>"}, set(), id="not between a node and what contains it"),
        pytest.param({"a": ">p", "b": ">p", "c": "p>"}, set(), id="not from two givers"),
        pytest.param(
            {"a": ">p", "b": "p>p", "c": "p>"},
            {("a", "b"), ("a", "c")},
            id="not from a node that passes it on",
        ),
        pytest.param({"a": ">p", "b": "q>"}, set(), id="not between different values"),
    ],
)
def test_values_flow(values: dict[str, str], flows: set[tuple[str, str]]) -> None:
    assert flows_of(**values) == flows


@pytest.mark.parametrize(
    ("values", "late"),
    [
        pytest.param({"root": "p>", "a": "p>q", "b": "r>"}, {"b"}, id="what the module made"),
        pytest.param({"root": "p>", "a": "p>q", "b": "q>"}, set(), id="not what a sibling gave"),
        pytest.param({"a": ">q", "b": "q>", "c": "r>"}, {"c"}, id="what nobody gave beside others"),
        pytest.param({"a": ">q", "c": "r>"}, set(), id="not where nothing beside takes what was made before"),
        pytest.param({"root": "p>", "b": "p>", "c": "r>r"}, {"c"}, id="what is passed on was made by others"),
        pytest.param({"root": "p>", "b": "p>", "a_x": "r>"}, {"a"}, id="through a container"),
        pytest.param({"root": "p>", "b": "p>", "a": "p>", "a_x": "r>"}, set(), id="not through what ran"),
    ],
)
def test_what_takes_what_no_node_gave_is_late(values: dict[str, str], late: set[str]) -> None:
    assert late_among(tensors_of(values)) - {"a.x"} == late


def late_among(tensors: dict[str, list[TensorRecord]]) -> set[str]:
    return {name for name, is_late in takers_of_unmade(tensors, PARENTS).items() if is_late}


def test_what_takes_too_few_elements_to_tell_stays_behind_the_sibling_before_it() -> None:
    """The scores of two classes are few elements: nothing else says when softmax runs."""
    children = {None: ["embed", "layers", "classifier", "softmax"]}
    labels = {name: name for name in children[None]}
    late = {"embed": False, "layers": True, "classifier": True}
    assert finish_order(children, labels, {("embed", "layers")}, late)[0] == children[None]


@pytest.mark.parametrize(("rows", "late"), [(4, {"b"}), (3, set())])
def test_what_takes_some_rows_may_take_those_of_the_input(rows: int, late: set[str]) -> None:
    """As an expert does, which takes the rows of its tokens."""
    tensors = tensors_of({"root": "p>", "a": "p>"})
    tensors["root"] = [replace(tensors["root"][0], shape=(4, 8))]
    tensors["b"] = [replace(tensor(Role.INPUT, "r"), shape=(rows, 8))]
    assert {name for name, is_late in takers_of_unmade(tensors, PARENTS).items() if is_late} == late


def test_whole_numbers_that_no_node_gave_are_there_from_the_start() -> None:
    positions = replace(tensor(Role.INPUT, "r"), dtype="int64")
    tensors = tensors_of({"root": "p>", "a": "p>"}) | {"b": [positions]}
    assert late_among(tensors) == set()


def test_what_takes_the_input_of_the_module_runs_before_what_takes_what_was_made_of_it() -> None:
    children = {None: ["ffn_norm", "attention", "operator_norm"]}
    labels = {name: name for name in children[None]}
    flows = {("operator_norm", "attention")}
    late = {"ffn_norm": True, "attention": False, "operator_norm": False}
    assert finish_order(children, labels, flows, late)[0] == [
        "operator_norm",
        "attention",
        "ffn_norm",
    ]


def test_recorded_statistics_stand_for_values_where_there_is_no_checksum() -> None:
    known = Statistics(2.0, -1.0, 0.25, 3.5)
    constant = Statistics(1.0, 1.0, 1.0, 2.0)

    def flow(statistics: Statistics) -> set[tuple[str, str]]:
        shapes = {Role.OUTPUT: (2, 8), Role.INPUT: (16,)}
        given_, taken = (TensorRecord(role, "0", "float32", of, statistics) for role, of in shapes.items())
        return value_flows({"a": [given_], "b": [taken]}, PARENTS)

    assert flow(known) == {("a", "b")}
    assert flow(constant) == set()


def test_zeros_and_values_of_few_bytes_tell_nothing() -> None:
    for digest in ("crc32:758d6336:64", "crc32:00000001:8"):  # zlib.crc32(bytes(64)); eight bytes
        given_, taken = (
            TensorRecord(role, "0", "float32", (2,), digest=digest) for role in (Role.OUTPUT, Role.INPUT)
        )
        assert value_flows({"a": [given_], "b": [taken]}, PARENTS) == set()
