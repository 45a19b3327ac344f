"""A damaged or hostile ATB dump gives values, recorded problems or a named error; links stay inside it."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from library.dumps.atb_samples import (
    DECODE,
    MSPROBE_DATA,
    PREFILL,
    TENSORS,
    model,
    numbers,
    write,
    write_dump,
    write_models,
    write_run,
)
from messages import ids_of, outline, passed_over

from firstdrift.dumps.detect import open_dump
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import DumpError, TensorUnreadableError
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import TensorRecord
from firstdrift.parallel.slices import read_slice
from firstdrift.wording.message import Message

SECRET = 4711.0
TABLE = (
    "Device and PID,Execution Count,Op Name,Op Type,Op Id,Input/Output,Index,Dtype,Format,Shape,Max,Min,"
    "Mean,Norm,Tensor Path\n"
    "0_42,0,Embedding,Embedding,0,output,0,float,nd,1,0.000000,0.000000,0.000000,0.000000,\n"
    "0_42,0,Decoder_layer/LinearOperation,LinearOperation,4_0,input,1,bf16,nd,6x32,N/A,N/A,N/A,N/A,\n"
)


def read_all(path: Path) -> list[Slice]:
    dump = open_dump(path)
    return [read_slice(dump, listing) for listing in dump.slices]


def records(path: Path) -> Iterator[TensorRecord]:
    return (record for read in read_all(path) for node in read.nodes for record in node.tensors)


def values(path: Path) -> list[float]:
    """Return all values that can be loaded from a dump."""
    found = []
    for record in records(path):
        if record.location is not None:
            with suppress(TensorUnreadableError):
                found += load_tensor(record.location).astype(float).reshape(-1).tolist()
    return found


def write_msprobe_dump(root: Path) -> Path:
    write_models(root / "atb_dump_data/info/model/0_42", model("P", *PREFILL), model("D", *DECODE))
    run = root / MSPROBE_DATA / "0"
    write_run(run, PREFILL + DECODE)
    write(run / "4_Decoder_layer/0_LinearOperation/op_param.json", '{"a": {"b": [1, 2.5, null, "x"]}}')
    write(run / "statistic.csv", TABLE)
    return root


FILES = {
    "topology": "atb_dump_data/info/model/0_42/D.json",
    "table": f"{MSPROBE_DATA}/0/statistic.csv",
    "arguments": f"{MSPROBE_DATA}/0/4_Decoder_layer/0_LinearOperation/op_param.json",
    "tensor": f"{MSPROBE_DATA}/0/2_LmHead/after/outtensor0.bin",
}


@pytest.mark.parametrize("which", FILES)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.binary(min_size=1, max_size=4)), max_size=6),
    cut=st.none() | st.integers(0, 10_000),
)
def test_any_damage_gives_a_value_or_a_named_problem(
    tmp_path: Path, which: str, changes: list[tuple[int, bytes]], cut: int | None
) -> None:
    file = write_msprobe_dump(tmp_path) / FILES[which]
    data = bytearray(file.read_bytes())
    for at, value in changes:
        start = at % len(data)
        data[start : start + len(value)] = value
    file.write_bytes(data if cut is None else data[: cut % len(data)])
    with suppress(DumpError):
        for read in read_all(tmp_path):
            assert len({node.name for node in read.nodes}) == len(read.nodes)
            names = {None, *(node.name for node in read.nodes)}
            assert all(node.parent in names for node in read.nodes)
    with suppress(DumpError):
        assert {0.0, 1.0, 3.0, 4.0, 5.0} <= set(values(tmp_path))


NAMES = ["0_<script>alert(1)<", "1_..", "2_a b\nc", "3_" + "x" * 250, "4_日本", "5_%2e%2e", "6_a.b.c", "7__"]


def test_operations_of_any_name_are_read(tmp_path: Path) -> None:
    write_run(tmp_path / TENSORS / "0", NAMES)
    (read,) = read_all(tmp_path)
    assert [node.name for node in read.nodes] == NAMES
    assert values(tmp_path) == list(range(8))


def test_a_name_that_is_no_text_is_written_out(tmp_path: Path) -> None:
    write_run(tmp_path / TENSORS / "0", [os.fsdecode(b"0_\xff\xfe")])
    (read,) = read_all(tmp_path)
    assert read.nodes[0].name == "0_\\xff\\xfe"
    assert values(tmp_path) == [0]


@pytest.mark.parametrize("name", ["00_Op", "-1_Op", "1", "_Op", "x_Op", "9999999999_Op", "\uff11_Op"])
def test_folders_of_other_names_are_no_operations(tmp_path: Path, name: str) -> None:
    write_dump(tmp_path, {0: PREFILL + DECODE})
    write(tmp_path / TENSORS / "0" / name / "after/outtensor0.bin", numbers(1))
    read = read_all(tmp_path)[0]
    assert [node.name for node in read.nodes] == list(PREFILL)
    assert read.problems[0].reason == passed_over(name)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Write a dump with a secret beside it."""
    write(tmp_path / "secret/outtensor0.bin", numbers(SECRET))
    write(tmp_path / "secret/3_Op/after/outtensor0.bin", numbers(SECRET))
    write_models(tmp_path / "secret", model("Secret", "0_Secret"))
    return write_dump(tmp_path / "dump", {0: PREFILL + DECODE, 1: DECODE})


class TestLinks:
    def test_a_link_to_a_tensor_of_the_dump_is_followed(self, dump: Path) -> None:
        file = dump / TENSORS / "1/5_LmHead/after/outtensor0.bin"
        file.unlink()
        file.symlink_to("../../../0/3_Embedding/after/outtensor0.bin")
        assert values(dump) == [0, 1, 2, 3, 4, 5, 3, 4, 3]
        assert not any(record.problem for record in records(dump))

    @pytest.mark.parametrize("is_absolute", [True, False])
    def test_a_link_that_leads_out_is_not(self, dump: Path, *, is_absolute: bool) -> None:
        file = dump / TENSORS / "1/5_LmHead/after/outtensor0.bin"
        file.unlink()
        secret = dump.parent / "secret/outtensor0.bin"
        file.symlink_to(secret if is_absolute else os.path.relpath(secret, file.parent))
        assert SECRET not in values(dump)
        assert [ids_of(record.problem)[1:] for record in records(dump) if record.problem] == [
            ("dumps.link.leads_out",)
        ]

    @pytest.mark.parametrize("goal", ["missing.bin", "outtensor0.bin", "."])
    def test_a_link_that_leads_nowhere_is_a_problem_of_its_tensor(self, dump: Path, goal: str) -> None:
        file = dump / TENSORS / "1/5_LmHead/after/outtensor0.bin"
        file.unlink()
        file.symlink_to(goal)
        assert sum(record.problem is not None for record in records(dump)) == 1

    @pytest.mark.parametrize(
        "place", ["1/6_Op", "1/5_LmHead/0_Op", "1/5_LmHead/before", "2", "1/5_LmHead/0_Up"]
    )
    def test_links_to_folders_are_not_followed(self, dump: Path, place: str) -> None:
        link = dump / TENSORS / place
        secret = dump.parent / "secret"
        goals = {"before": secret / "3_Op/after", "2": secret, "0_Up": link.parent.parent}
        link.symlink_to(goals.get(link.name, secret / "3_Op"))
        assert SECRET not in values(dump)
        opened = open_dump(dump)
        problems = [*opened.problems, *(p for s in opened.slices for p in read_slice(opened, s).problems)]
        assert any(link.name in str(problem.reason.arguments) for problem in problems)

    @pytest.mark.parametrize(
        ("place", "goal"),
        [
            ("msit_dump_1/model/42/Linked.json", "Secret.json"),
            ("msit_dump_1/model/42", "."),
            (f"{TENSORS}/0/0_Embedding/op_param.json", "Secret.json"),
            (f"{TENSORS}/0/statistic.csv", "Secret.json"),
        ],
    )
    def test_texts_are_not_read_through_links_that_lead_out(self, dump: Path, place: str, goal: str) -> None:
        link = dump / place
        if link.is_dir():
            link.rename(link.with_name("moved"))
        link.symlink_to(dump.parent / "secret" / goal)
        opened = open_dump(dump)
        problems = [*opened.problems, *(p for s in opened.slices for p in read_slice(opened, s).problems)]
        assert problems
        assert "Secret" not in outline(opened.attributes["models"])
        assert all("0_Secret" not in node.name for read in read_all(dump) for node in read.nodes)
        assert all("Secret" not in (record.scalar or "") for record in records(dump))


def test_pipes_among_the_files_are_not_waited_for(dump: Path) -> None:
    for place in (
        *(f"{TENSORS}/0/statistic.csv", f"{TENSORS}/0/0_Embedding/op_param.json"),
        *(f"{TENSORS}/0/0_Embedding/after/outtensor1.bin", "msit_dump_1/model/42/Pipe.json"),
    ):
        os.mkfifo(dump / place)
    assert len(values(dump)) == 9
    assert sum(record.problem is not None for record in records(dump)) == 1


def test_arguments_without_end_are_cut_off(dump: Path) -> None:
    text = "[" + ",".join(map(str, range(10_000))) + "]"
    write(dump / TENSORS / "0/0_Embedding/op_param.json", text)
    read = read_all(dump)[0]
    assert sum(not record.is_tensor for node in read.nodes for record in node.tensors) == 256
    assert read.problems[0].reason == Message.of("dumps.atb.too_many_arguments", most=256)
