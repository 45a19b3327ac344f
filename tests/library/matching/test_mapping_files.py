"""What is promised of reading mapping files."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mapping_reading import read_mapping
from messages import like, outline

from firstdrift.errors import SettingsError
from firstdrift.matching.manual.mapping import MappingEntry, MappingFile, MappingKind, split_item

MAPPINGS = Path(__file__).parents[2] / "mappings"


def written(folder: Path, text: str | bytes, name: str = "mapping.yaml") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("name", "kind", "entries"),
    [
        ("layer_mapping_qwen2.yaml", MappingKind.LAYER, 11),
        ("layer_mapping_qwen25vl.yaml", MappingKind.LAYER, 23),
        ("layer_mapping_qwen2_reversed.yaml", MappingKind.LAYER, 11),
        ("data_mapping_llama.yaml", MappingKind.DATA, 4),
        ("op_mapping_file.json", MappingKind.OPERATOR, 1),
        ("", MappingKind.OPERATOR, 1),
    ],
)
def test_the_format_is_seen_from_what_the_file_holds(name: str, kind: MappingKind, entries: int) -> None:
    read = read_mapping(MAPPINGS / name)
    assert (read.kind, len(read.entries)) == (kind, entries)


def test_an_entry_says_class_target_golden_and_line(tmp_path: Path) -> None:
    text = (
        "Cell:\n  0.module: module(DDP)\n\nEmpty:\nMLP:  # the feed-forward part\n  linear_fc2: down_proj\n"
    )
    read = read_mapping(written(tmp_path, text))
    assert read.entries == (
        MappingEntry(2, "0.module", ("module",), "TopLayer"),
        MappingEntry(6, "linear_fc2", ("down_proj",), "MLP"),
    )
    named = outline(read.name_entry(read.entries[1]))
    assert named == "scoped_entry 6 down_proj mapping.yaml linear_fc2 MLP"


def test_cell_mappings_hold_names_and_parts_of_names(tmp_path: Path) -> None:
    read = read_mapping(written(tmp_path, "fc1.Dense: fc1.Linear\nnetwork: model\n"))
    assert read == MappingFile(
        "mapping.yaml",
        MappingKind.CELL,
        (MappingEntry(1, "fc1.Dense", ("fc1.Linear",)), MappingEntry(2, "network", ("model",))),
    )


def test_operator_types_may_hold_underscores_and_be_texts_or_lists(tmp_path: Path) -> None:
    text = '{\n\t"Decoder_layer_outtensor0": "Llama_Layer_output_0",\n\t"Gate": ["MLP", "FFN"]\n}'
    read = read_mapping(written(tmp_path, text, "op_mapping_file.json"))
    assert read.kind is MappingKind.OPERATOR
    assert [entry.golden for entry in read.entries] == [("Llama_Layer_output_0",), ("MLP", "FFN")]
    assert [entry.line for entry in read.entries] == [2, 3]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("# nothing\n", "empty"),
        ("- a\n- b\n", "at_line 1 mapping_expected list"),
        ("only words", "at_line 1 mapping_expected text quoted 'only words'"),
        ("MLP:\n  a: b\n  a: c\n", "at_key_of_scope 3 quoted 'a' quoted 'MLP' twice 2"),
        ("a: b\nc: d\na: e\n", "at_key 3 quoted 'a' twice 1"),
        ("TopLayer:\n  a: b\nCell:\n  c: d\n", "at_key 3 quoted 'Cell' other_name TopLayer"),
        ("MLP:\n  a: b\nother: c\n", "at_key 3 quoted 'other' holds_no_mapping text quoted 'c'"),
        ("MLP:\n  a:\n", "at_key 2 quoted 'a' no_value"),
        ("MLP:\n  a: [b]\n", "at_key 2 quoted 'a' holds_no_name list"),
        ("MLP:\n  a: (b)\n", "at_key 2 quoted 'a' empty_path"),
        ("MLP:\n  ? [x]\n  : b\n", "at_line 2 key_is_no_name list"),
        ("a: b: c\n", "at_line 1 no_yaml_as values_not_allowed"),
        ("a: &x {b: c}\nd: *x\n", "at_line 2 alias quoted '*x'"),
        ("[" * 5000, "at_line 1 too_deep"),
        ("a: b\n---\nc: d\n", "at_line 2 no_yaml"),
        (
            "Functional.add.0.forward.input.0: add.0\n",
            "at_key 1 quoted 'Functional.add.0.forward.input.0' names_no_tensor quoted 'add.0'",
        ),
        ('{"Linear": []}', "at_key 1 quoted 'Linear' empty_list"),
        ('{"Linear": ["a.b"]}', "at_key 1 quoted 'Linear' no_type quoted 'a.b'"),
        (b"\xff\xfe\x00", "no_utf8 0"),
        (b"a: \x00", "no_yaml"),
    ],
)
def test_what_is_wrong_is_said_with_file_line_and_key(tmp_path: Path, text: str | bytes, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        read_mapping(path)
    assert outline(caught.value.message) == said
    assert caught.value.path == path


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=rf"none\.yaml: {like('matching.mapping.not_read')}"):
        read_mapping(tmp_path / "none.yaml")


@settings(deadline=None, max_examples=70)
@given(cut=st.integers(0, 900), at=st.integers(0, 900), noise=st.binary(max_size=6))
def test_a_damaged_file_gives_a_mapping_or_a_named_error(
    tmp_path_factory: pytest.TempPathFactory, cut: int, at: int, noise: bytes
) -> None:
    data = (MAPPINGS / "layer_mapping_qwen25vl.yaml").read_bytes()
    path = tmp_path_factory.getbasetemp() / "damaged.yaml"
    path.write_bytes(data[:at] + noise + data[at : max(at, len(data) - cut)])
    try:
        assert read_mapping(path).name == path.name
    except SettingsError as error:
        assert error.path == path  # noqa: PT017 (both outcomes are right)


@pytest.mark.parametrize(
    ("item", "node", "label"),
    [
        ("Functional.linear.0.forward.input.0", "Functional.linear.0.forward", "input.0"),
        ("Module.a.input.B.forward.0.input.mask.1", "Module.a.input.B.forward.0", "input.mask.1"),
        ("Module.a.B.forward.2.parameters.weight", "Module.a.B.forward.2", "parameter.weight"),
        ("Module.a.B.parameters_grad.0.weight", "Module.a.B.parameters_grad.0", "gradient.weight"),
        ("Module.a.B.parameters_grad.weight", "Module.a.B.parameters_grad", "gradient.weight"),
        ("Module.a.B.forward.0", "Module.a.B.forward.0", None),
    ],
)
def test_the_name_of_a_tensor_is_that_of_its_node_and_its_role(
    item: str, node: str, label: str | None
) -> None:
    assert split_item(item) == (node, label)
