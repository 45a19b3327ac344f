"""The text of a graph tells what operators were made from, and takes the names of fused ones apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from library.dumps.torchair_samples import operator
from messages import ids_of

from firstdrift.dumps.torchair.graph import parse_graph
from firstdrift.model.node import Source

CHAIN = (
    operator("MatMul", "MatMul", ["arg0_1:0", "arg1_1:0"], "mm-aten.mm.default.OUTPUT.0")
    + operator("Add_1", "Add", ["MatMul:0", "arg2_1:0"], "add-aten.add.Tensor.OUTPUT.0")
    + operator("Sigmoid_1", "Sigmoid", ["Add_1:0"], "sigmoid-aten.sigmoid.default.OUTPUT.0")
    + operator("Mul_1", "Mul", ["Add_1:0", "Sigmoid_1:0"], "mul-aten.mul.Tensor.OUTPUT.0")
)


def sources(
    text: str, name: str, inputs: int, outputs: int, *, without: str = ""
) -> dict[str, dict[str, str]]:
    graph = parse_graph(text)
    assert not graph.problem
    dumped = graph.operators.keys() - {without}
    return {one.node: dict(one.tensors) for one in graph.sources(graph.parts(name), inputs, outputs, dumped)}


def test_an_operator_is_what_its_fx_node_takes_and_gives() -> None:
    assert sources(CHAIN, "MatMul", 2, 1) == {
        "mm-aten.mm.default": {"input.0": "input.0", "input.1": "input.1", "output.0": "output.0"}
    }


def test_what_was_fused_takes_what_comes_from_outside_and_gives_what_goes_there() -> None:
    assert sources(CHAIN, "Add_1Sigmoid_1Mul_1", 2, 1) == {
        "add-aten.add.Tensor": {"input.0": "input.0", "input.1": "input.1"},
        "sigmoid-aten.sigmoid.default": {},
        "mul-aten.mul.Tensor": {"output.0": "output.0"},
        "Add_1": {"input.0": "input.0", "input.1": "input.1"},
        "Sigmoid_1": {},
        "Mul_1": {"output.0": "output.0"},
    }


def test_a_part_in_the_middle_may_take_and_give_too() -> None:
    text = (
        operator("A", "Add", ["x:0", "y:0"], "a-aten.add.Tensor.OUTPUT.0")
        + operator("B", "Mul", ["A:0", "z:0"], "b-aten.mul.Tensor.OUTPUT.0")
        + operator("C", "Relu", ["B:0"], "c-aten.relu.default.OUTPUT.0")
        + operator("Other", "Neg", ["A:0"], "o-aten.neg.default.OUTPUT.0")
    )
    found = sources(text, "ABC", 3, 2)
    assert found["a-aten.add.Tensor"] == {"input.0": "input.0", "input.1": "input.1", "output.0": "output.0"}
    assert found["b-aten.mul.Tensor"] == {"input.2": "input.1"}
    assert found["c-aten.relu.default"] == {"output.1": "output.0"}


def test_what_two_parts_take_is_one_input_of_the_whole() -> None:
    text = operator("A", "Add", ["x:0", "y:0"], "a-aten.add.Tensor.OUTPUT.0") + operator(
        "B", "Mul", ["A:0", "x:0"], "b-aten.mul.Tensor.OUTPUT.0"
    )
    assert sources(text, "AB", 2, 1)["a-aten.add.Tensor"] == {"input.0": "input.0", "input.1": "input.1"}
    assert sources(text, "AB", 3, 1)["b-aten.mul.Tensor"] == {"input.2": "input.1", "output.0": "output.0"}


def test_an_fx_node_that_became_several_operators_did_not_take_what_they_hand_on() -> None:
    text = operator("MatMul", "MatMul", ["x:0", "w:0"], "") + operator(
        "Add", "Add", ["MatMul:0", "b:0"], "addmm-aten.addmm.default.OUTPUT.0"
    )
    assert sources(text, "MatMul", 2, 1) == {}
    assert sources(text, "Add", 2, 1) == {
        "addmm-aten.addmm.default": {"input.1": "input.1", "output.0": "output.0"}
    }


def test_a_value_that_was_only_cast_is_still_the_one_that_the_node_took() -> None:
    text = (
        operator("Relu", "Relu", ["x:0"], "relu-aten.relu.default.OUTPUT.0")
        + operator("Cast", "Cast", ["Relu:0"], "")
        + operator("Neg", "Neg", ["Cast:0"], "neg-aten.neg.default.OUTPUT.0")
    )
    assert sources(text, "Neg", 1, 1)["neg-aten.neg.default"]["input.0"] == "input.0"


def test_a_node_that_only_hands_its_value_on_gave_its_name_to_the_operator_before_it() -> None:
    text = operator("MatMul", "MatMul", ["x:0", "w:0"], "view-aten.view.default.OUTPUT.0")
    assert sources(text, "MatMul", 2, 1) == {"view-aten.view.default": {"output.0": "output.0"}}
    text = operator("Reshape", "Reshape", ["x:0"], "view-aten.view.default.OUTPUT.0")
    assert sources(text, "Reshape", 1, 1)["view-aten.view.default"]["input.0"] == "input.0"


def test_an_operator_that_a_transposition_was_folded_into_takes_another_value() -> None:
    text = operator("Transpose", "Transpose", ["w:0"], "t-aten.t.default.OUTPUT.0") + operator(
        "MatMul", "MatMul", ["x:0", "Transpose:0"], "mm-aten.mm.default.OUTPUT.0"
    )
    whole = {"input.0": "input.0", "input.1": "input.1", "output.0": "output.0"}
    assert sources(text, "MatMul", 2, 1) == {"mm-aten.mm.default": whole}
    folded = {"input.0": "input.0", "output.0": "output.0"}
    assert sources(text, "MatMul", 2, 1, without="Transpose") == {"mm-aten.mm.default": folded}


def test_each_output_has_its_own_origin() -> None:
    text = operator(
        "Split", "Split", ["x:0"], "split-aten.split.Tensor.OUTPUT.0", "split-aten.split.Tensor.OUTPUT.1"
    )
    assert sources(text, "Split", 1, 2)["split-aten.split.Tensor"] == {
        "input.0": "input.0",
        "output.0": "output.0",
        "output.1": "output.1",
    }


def test_control_inputs_are_no_inputs() -> None:
    text = operator("Relu", "Relu", ["x:0", "Other:-1"], "relu-aten.relu.default.OUTPUT.0")
    assert parse_graph(text).operators["Relu"].inputs == (("x", 0),)


@pytest.mark.parametrize(
    ("known", "name", "parts"),
    [
        (["Add", "Add_1"], "Add_1Add", ("Add_1", "Add")),
        (["Add_1", "Add_11", "1Mul"], "Add_11Mul", ("Add_1", "1Mul")),
        (["A", "AB", "BC"], "ABC", ("A", "BC")),
        (["Add"], "AddMul", ()),
        (["Add"], "trans_Cast_9", ()),
        (["Add"], "", ()),
        (["a", "aa"], "a" * 2000 + "b", ()),
        (["a" * length for length in range(1, 200)], "a" * 2047 + "b", ()),
        (["a"], "a" * 5000, ()),
    ],
)
def test_the_name_of_what_was_fused_is_taken_apart_if_that_is_possible_at_all(
    known: list[str], name: str, parts: tuple[str, ...]
) -> None:
    graph = parse_graph("".join(operator(one, "T", []) for one in known))
    assert graph.parts(name) == parts


def test_layout_quotes_escapes_and_what_lies_around_do_not_matter() -> None:
    text = (
        'name: "graph" # a comment {\n'
        'graph { op < name: \'A\\"\\101\\x42\' type: "Add" input: "x:0"'
        ' attr { key: "v" value { list { i: [1, 2] } } }'
        ' output_desc { attr { key: "_fx_tensor_name" value { s: "a: {b}.OUTPUT.3" } } } >'
        ' op { type: "Nameless" } }'
    )
    graph = parse_graph(text)
    assert not graph.problem
    (found,) = graph.operators.values()
    assert (found.name, found.type_name, found.inputs) == ('A"AB', "Add", (("x", 0),))
    assert graph.sources((found.name,), 1, 1, ()) == (
        Source("a: {b}", (("input.0", "input.0"), ("output.0", "output.3"))),
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (CHAIN[:-2], "open_block"),
        (CHAIN[:-30], "open_text"),
        (CHAIN + "}", "block_without_begin"),
        (CHAIN + 'name: "', "open_text"),
        ("op {" * 200, "nested_too_deeply"),
        ("", "no_operator"),
    ],
)
def test_a_damaged_text_says_so_and_what_comes_before_is_used(text: str, problem: str) -> None:
    graph = parse_graph(text)
    assert ids_of(graph.problem) == (f"dumps.torchair.graph.{problem}",)
    assert ("MatMul" in graph.operators) is text.startswith(CHAIN[:20])


@given(st.text(alphabet='op{}<>:"\\ name_fx.0\n', max_size=200), st.integers(0, len(CHAIN)))
def test_any_text_is_a_graph_or_has_a_problem(text: str, at: int) -> None:
    for one in (text, CHAIN[:at] + text + CHAIN[at:]):
        graph = parse_graph(one)
        for name in graph.operators:
            assert len(graph.sources(graph.parts(name), 3, 3, ())) <= 3
