"""A damaged msprobe dump gives a named error or a recorded problem; the rest of it is read."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from library.dumps.msprobe_samples import module, tensor, write_dump, write_json
from messages import ids_of, refuses

from firstdrift.dumps.msprobe.reader import MsprobeReader
from firstdrift.errors import DumpUnreadableError
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import TensorRecord
from firstdrift.wording.message import Message

Unpacked = Callable[[str], Path]
READER = MsprobeReader()
NAME = "Module.a.A.forward.0"


def read(path: Path) -> Slice:
    dump = READER.open_dump(path)
    return READER.read_slice(dump, dump.slices[0])


def input_of(path: Path) -> TensorRecord:
    found = read(path)
    assert found.problems == ()
    return found.nodes[0].tensors[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(b"", "dumps.json.incomplete", id="empty"),
        pytest.param(b'{"task": "statistics", "data": {"Module.a', "dumps.json.incomplete", id="cut-short"),
        pytest.param(b"PK\x03\x04\xff\xff", "dumps.json.not_utf8", id="binary"),
        pytest.param(b"[]", "dumps.msprobe.no_data", id="list"),
        pytest.param(b"{}", "dumps.msprobe.no_data", id="no-data"),
        pytest.param(b'{"data": []}', "dumps.msprobe.no_data", id="data-is-a-list"),
        pytest.param(b'{"data": ' + b"[" * 100_000, "dumps.json.nested_too_deeply", id="deep"),
        pytest.param(
            b'{"data": {"a": ' + b"9" * 5000 + b"}}", "dumps.json.number_too_long", id="long-number"
        ),
    ],
)
def test_a_dump_json_that_cannot_be_read_is_refused_by_name(tmp_path: Path, text: bytes, reason: str) -> None:
    write_dump(tmp_path, {}, {})
    (tmp_path / "dump.json").write_bytes(text)
    assert READER.recognise(tmp_path)
    with refuses(DumpUnreadableError, reason) as raised:
        read(tmp_path)
    assert raised.value.path == tmp_path / "dump.json"


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000])
def test_a_damaged_construct_json_is_reported_and_paths_make_the_tree(tmp_path: Path, text: bytes) -> None:
    write_dump(tmp_path, {"Module.a.b.B.forward.0": module(), NAME: module()})
    (tmp_path / "construct.json").write_bytes(text)
    found = read(tmp_path)
    assert [node.parent for node in found.nodes] == [NAME, None]
    assert [problem.file for problem in found.problems] == ["construct.json"]


def test_a_construct_json_that_is_no_object_is_reported(tmp_path: Path) -> None:
    write_dump(tmp_path, {NAME: module()})
    write_json(tmp_path / "construct.json", [1])
    assert [problem.reason for problem in read(tmp_path).problems] == [Message.of("dumps.json.no_object")]


def test_a_damaged_stack_json_is_refused_by_name(tmp_path: Path) -> None:
    write_dump(tmp_path, {NAME: module()}, {})
    (tmp_path / "stack.json").write_text("[")
    dump = READER.open_dump(tmp_path)
    (listing,) = dump.slices
    assert len(read(tmp_path).nodes) == 1
    with pytest.raises(DumpUnreadableError, match=r"stack\.json"):
        READER.read_stacks(dump, listing)


@pytest.mark.parametrize(
    "stack", [[], {"0": 1}, {"0": [1, 2]}, {"0": [[1], [2]]}, {"a": [{}]}, {"0": [[], []]}]
)
def test_entries_of_stack_json_that_make_no_sense_are_no_stacks(tmp_path: Path, stack: object) -> None:
    write_dump(tmp_path, {NAME: module()}, {})
    write_json(tmp_path / "stack.json", stack)
    dump = READER.open_dump(tmp_path)
    stacks = READER.read_stacks(dump, dump.slices[0])
    assert all(isinstance(frame, str) for frames in stacks.values() for frame in frames)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        pytest.param(7, Message.of("dumps.record.no_object", recorded="7"), id="number"),
        pytest.param(None, Message.of("dumps.record.no_object", recorded="None"), id="null"),
        pytest.param(
            {"output": 7, "input": [tensor()]},
            Message.of("dumps.record.no_values", part="output", recorded="7"),
            id="part-is-a-number",
        ),
        pytest.param(
            {"sidelong": [], "input": [tensor()]},
            Message.of("dumps.record.unknown_part", part="'sidelong'"),
            id="unknown-part",
        ),
    ],
)
def test_a_record_of_the_wrong_type_is_reported_and_the_rest_is_read(
    tmp_path: Path, record: object, reason: Message
) -> None:
    write_dump(tmp_path, {NAME: record, "Module.b.A.forward.0": module()}, {})
    found = read(tmp_path)
    (problem,) = found.problems
    assert problem.file == "dump.json"
    assert problem.reason == Message.of("dumps.record.problem", record=NAME, problem=reason)
    assert len(found.nodes) == 2
    assert len(found.nodes[0].tensors) == (1 if isinstance(record, dict) else 0)


def test_nesting_of_any_depth_gives_a_slice_or_a_named_error(tmp_path: Path) -> None:
    reasons = set()
    for depth in range(700, sys.getrecursionlimit(), 2):
        value = "[" * depth + json.dumps(tensor()) + "]" * depth
        (tmp_path / "dump.json").write_text(f'{{"data": {{"{NAME}": {{"output": {value}}}}}}}')
        try:
            reasons.update(ids_of(problem.reason) for problem in read(tmp_path).problems)
        except DumpUnreadableError as error:
            reasons.add(ids_of(error.message))
    assert ("dumps.json.nested_too_deeply",) in reasons
    assert reasons <= {
        ("dumps.json.nested_too_deeply",),
        ("dumps.record.problem", "dumps.record.nested_too_deeply"),
        ("clauses", "dumps.file.missing", "dumps.msprobe.tree_from_names"),
    }


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"shape": [2, -1]}, "bad_shape", id="negative-size"),
        pytest.param({"shape": [10**30]}, "bad_shape", id="huge-size"),
        pytest.param({"shape": [2**62] * 20}, "bad_shape", id="huge-number-of-elements"),
        pytest.param({"shape": "2,3"}, "bad_shape", id="shape-as-text"),
        pytest.param({"shape": None}, "bad_shape", id="no-shape"),
        pytest.param({"dtype": 3}, "bad_dtype", id="dtype-is-a-number"),
        pytest.param({"Max": "big"}, "bad_statistics", id="statistics-are-text"),
        pytest.param({"Max": 10**400}, "bad_statistics", id="statistics-beyond-float"),
    ],
)
def test_a_tensor_whose_record_makes_no_sense_says_so(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    write_dump(tmp_path, {NAME: module(tensor(**changes))}, {})
    assert ids_of(input_of(tmp_path).problem) == (f"dumps.record.{reason}",)


@pytest.mark.parametrize(
    "data_name", ["../secret.pt", "/etc/passwd.pt", "a/b.pt", "..", ".", "", "a\\b.pt", "a\0.pt", 5, ["a.pt"]]
)
def test_a_data_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path, data_name: object) -> None:
    (tmp_path / "secret.pt").touch()
    dump = write_dump(tmp_path / "step0", {NAME: module(tensor(data_name=data_name))}, {})
    (dump / "dump_tensor_data").mkdir()
    record = input_of(tmp_path)
    assert record.location is None
    assert record.problem == Message.of(
        "dumps.record.no_file_name", name=repr(data_name), folder="dump_tensor_data"
    )


@pytest.mark.parametrize("folder", [True, False])
def test_a_tensor_whose_file_is_missing_names_it(tmp_path: Path, folder: bool) -> None:
    write_dump(tmp_path, {NAME: module(tensor(data_name="gone.pt"))}, {})
    if folder:
        (tmp_path / "dump_tensor_data").mkdir()
    assert input_of(tmp_path).problem == Message.of(
        "dumps.record.file_missing", file="dump_tensor_data/gone.pt"
    )


def test_a_tensor_in_a_file_of_another_kind_names_it(tmp_path: Path) -> None:
    write_dump(tmp_path, {NAME: module(tensor(data_name="a.exe"))}, {})
    assert input_of(tmp_path).problem == Message.of("dumps.record.other_file", file="a.exe")


def test_a_repeated_key_is_reported_and_the_last_one_counts(tmp_path: Path) -> None:
    write_dump(tmp_path, {}, {})
    record = json.dumps(module())
    (tmp_path / "dump.json").write_text(f'{{"data": {{"{NAME}": {{}}, "{NAME}": {record}}}}}')
    found = read(tmp_path)
    assert [problem.reason for problem in found.problems] == [
        Message.of("dumps.json.key_repeated", key=repr(NAME))
    ]
    assert len(found.nodes[0].tensors) == 1


def test_an_empty_dump_says_so(tmp_path: Path) -> None:
    write_dump(tmp_path, {}, {})
    assert [problem.reason for problem in read(tmp_path).problems] == [Message.of("dumps.msprobe.no_records")]


def test_half_of_a_surrogate_pair_is_shown_as_it_was_escaped(tmp_path: Path) -> None:
    write_dump(tmp_path, {}, {})
    names = (
        r'"\ud83d.M.forward.0": {}, "\\ud83d.M.forward.0": {}, "\ud83d\ude00.M.forward.0": {}, "\"\udfff": {}'
    )
    (tmp_path / "dump.json").write_text(f'{{"data": {{{names}}}}}')
    found = read(tmp_path)
    assert {node.name for node in found.nodes} == {r"\ud83d.M.forward.0", "😀.M.forward.0", '"' + r"\udfff"}
    assert [problem.reason for problem in found.problems] == [
        Message.of("dumps.json.key_repeated", key=r"'\\ud83d.M.forward.0'")
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(), st.none() | st.just(module()), max_size=5))
def test_names_of_any_characters_are_kept(tmp_path: Path, data: dict[str, object]) -> None:
    write_dump(tmp_path, data, dict.fromkeys(data))
    assert {node.name for node in read(tmp_path).nodes} == set(data)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 40), st.binary(max_size=12)), min_size=1
    ),
    st.sampled_from(["dump.json", "construct.json", "stack.json"]),
)
def test_any_change_to_a_file_gives_a_slice_or_a_named_error(
    unpacked: Unpacked, tmp_path: Path, changes: list[tuple[float, int, bytes]], changed: str
) -> None:
    source = unpacked("msprobe/zoo_tensor_mix") / "golden" / "step0" / "rank0"
    for name in ("dump.json", "construct.json", "stack.json"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    text = (source / changed).read_bytes()
    for where, removed, added in changes:
        at = int(where * len(text))
        text = text[:at] + added + text[at + removed :]
    (tmp_path / changed).write_bytes(text)
    check_slice_or_error(tmp_path)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["type", "value", "shape", "dtype", "Max", "md5", "data_name", "output", "input_args"]
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(JSON_VALUES, JSON_VALUES)
def test_any_json_gives_a_slice_or_a_named_error(tmp_path: Path, data: object, construct: object) -> None:
    write_json(tmp_path / "dump.json", {"data": data})
    write_json(tmp_path / "construct.json", construct)
    check_slice_or_error(tmp_path)


def check_slice_or_error(path: Path) -> None:
    try:
        found = read(path)
        stacks = READER.read_stacks(READER.open_dump(path), found.listing)
    except DumpUnreadableError as error:
        assert error.path is not None  # noqa: PT017 - either outcome is right
        return
    orders = {node.name: node.order for node in found.nodes}
    assert len(orders) == len(found.nodes)
    assert all(node.parent is None or orders[node.parent] > node.order for node in found.nodes)
    assert json.dumps(list(stacks)).encode("utf-8")
    assert all(name.encode("utf-8") is not None for name in orders)
