"""What firstdrift reads out of the names that dumping tools give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstdrift.model.names import NameParts, enclosing_paths, module_path, parse_name, with_direction

DOTTED = st.lists(
    st.sampled_from(["model", "forward", "backward", "0", "7", "feed_forward", "", "Ü"]), max_size=7
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(
            "Module.model.layers.0.mlp.down_proj.Linear.forward.2",
            NameParts("module", "model.layers.0.mlp.down_proj", "Linear", "forward", 2),
            id="module",
        ),
        pytest.param(
            "Module.0.module.decoder.layers.1.TransformerLayer.backward.13",
            NameParts("module", "0.module.decoder.layers.1", "TransformerLayer", "backward", 13),
            id="module-of-a-list-of-models",
        ),
        pytest.param(
            "Cell.network.conv2.Conv2d.backward.0",
            NameParts("module", "network.conv2", "Conv2d", "backward", 0),
            id="mindspore-cell",
        ),
        pytest.param(
            "Module.feed_forward.forward.backward.Linear.forward.0",
            NameParts("module", "feed_forward.forward.backward", "Linear", "forward", 0),
            id="module-path-with-the-words-of-passes",
        ),
        pytest.param(
            "Module.forward.0.forward.Forward.backward.1",
            NameParts("module", "forward.0.forward", "Forward", "backward", 1),
            id="module-path-that-looks-like-a-name",
        ),
        pytest.param(
            "Module.lm_head.Linear.parameters_grad.1",
            NameParts("module", "lm_head", "parameters_grad", "backward", 1),
            id="gradients-of-parameters",
        ),
        pytest.param(
            "Module.lm_head.Linear.parameters_grad",
            NameParts("module", "lm_head", "parameters_grad", "backward", 0),
            id="gradients-of-parameters-of-older-releases",
        ),
        pytest.param(
            "Module.Linear.forward.0",
            NameParts("module", "", "Linear", "forward", 0),
            id="module-without-a-path",
        ),
        pytest.param(
            "Functional.linear.20.forward",
            NameParts("api", "Functional.linear", "Functional.linear", "forward", 20),
            id="operator",
        ),
        pytest.param(
            "Tensor.__add__.7.backward",
            NameParts("api", "Tensor.__add__", "Tensor.__add__", "backward", 7),
            id="method-of-a-tensor",
        ),
        pytest.param(
            "my.ops.v2.fused.forward.3.forward",
            NameParts("api", "my.ops.v2.fused.forward", "my.ops.v2.fused.forward", "forward", 3),
            id="operator-with-a-dotted-prefix",
        ),
        pytest.param("optimizer", NameParts("module", "optimizer", "optimizer", "none", 0), id="optimizer"),
        pytest.param("clip_grad", NameParts("module", "clip_grad", "clip_grad", "none", 0), id="clip-grad"),
        pytest.param("", NameParts("module", "", "", "none", 0), id="empty"),
        pytest.param(
            "Functional.linear.007.forward",
            NameParts("module", "Functional.linear.007.forward", "Functional.linear.007.forward", "none", 0),
            id="a-number-no-tool-writes-is-no-call",
        ),
        pytest.param(
            "a.b.forward.²",
            NameParts("module", "a.b.forward.²", "a.b.forward.²", "none", 0),
            id="superscript",
        ),
    ],
)
def test_a_name_is_taken_apart_as_the_tool_put_it_together(name: str, expected: NameParts) -> None:
    assert parse_name(name) == expected


@pytest.mark.parametrize("digits", [19, 5000])
def test_a_call_number_too_long_for_any_counter_stays_part_of_the_name(digits: int) -> None:
    assert parse_name(f"Functional.linear.{'9' * digits}.forward").direction == "none"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("root", ""),
        ("root.model.norm", "model.norm"),
        ("Module.model.norm", "model.norm"),
        ("Cell.model.norm", "model.norm"),
        ("rootmodel.norm", "rootmodel.norm"),
        ("Module", "Module"),
    ],
)
def test_the_prefix_of_the_framework_is_no_part_of_a_module_path(name: str, path: str) -> None:
    assert module_path(name) == path


def test_the_paths_around_a_path_come_innermost_first() -> None:
    assert list(enclosing_paths("model.layers.0.mlp")) == ["model.layers.0", "model.layers", "model"]
    assert list(enclosing_paths("model")) == []


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        ("Functional.linear.3.forward", "Functional.linear.3.backward"),
        ("Module.forward.Linear.forward.3", "Module.forward.Linear.backward.3"),
        ("optimizer", "optimizer"),
        ("Module.lm_head.Linear.parameters_grad.0", "Module.lm_head.Linear.parameters_grad.0"),
    ],
)
def test_the_two_passes_of_a_call_find_each_other(forward: str, backward: str) -> None:
    assert with_direction(forward, "backward") == backward
    assert with_direction(backward, "forward") == forward


@given(st.one_of(st.text(), DOTTED.map(".".join)))
def test_any_text_is_a_name_and_its_other_pass_leads_back(name: str) -> None:
    parts = parse_name(name)
    assert parts.kind in {"module", "api"}
    if parts.direction != "none" and not parts.holds_gradients:
        there = with_direction(name, "backward")
        assert parse_name(there).direction == "backward"
        assert with_direction(there, "forward" if parts.direction == "forward" else "backward") == name
    else:
        assert with_direction(name, "backward") == name
