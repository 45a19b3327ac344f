"""What the TorchAir readers find, in the layouts of all releases, and what they say of what is damaged."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from library.dumps.torchair_samples import floats, ge_file, operator, write, write_fx, write_ge
from messages import ids_of, passed_over, refuses

from firstdrift.dumps.detect import open_dump, recognise
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import DumpNotRecognisedError, DumpUnreadableError
from firstdrift.model.node import NodeKind, Source
from firstdrift.model.slice import RECORDED_ORDER, Coordinates, Dump, Slice
from firstdrift.parallel.slices import read_slice
from firstdrift.wording.message import Message

Unpacked = Callable[[str], Path]

TEXT = "dynamo_original_graph_{}_rank_0_pid_7_ts_20250101000000.txt"

# folder of the archive: format, tokens, operators and tensors of each, problems
CONTENTS = {
    "torchair/msit_fx_dump": ("torchair-fx", [0, 1, 2], 5, 13, 0),
    "torchair/msit_ge_dump": ("torchair-ge", [0, 1, 2], 4, 10, 0),
}


def read_all(path: Path) -> tuple[Dump, list[Slice]]:
    dump = open_dump(path)
    return dump, [read_slice(dump, listing) for listing in dump.slices]


def names(read: Slice) -> list[str]:
    return [node.name for node in read.nodes]


@pytest.mark.parametrize(("folder", "contents"), CONTENTS.items())
def test_every_token_operator_and_tensor_is_listed(
    unpacked: Unpacked, folder: str, contents: tuple[str, list[int], int, int, int]
) -> None:
    form, tokens, operators, tensors, problems = contents
    archive, _, below = folder.partition("/")
    dump, slices = read_all(unpacked(f"msit/{archive}") / below)
    assert dump.format == form
    assert dump.evidence
    assert [listing.coordinates for listing in dump.slices] == [
        Coordinates(rank=0, token=at) for at in tokens
    ]
    for read in slices:
        assert len(read.nodes) == operators
        assert all(node.kind is NodeKind.API and node.parent is None for node in read.nodes)
        records = [record for node in read.nodes for record in node.tensors]
        assert len(records) == tensors
        for record in records:
            assert record.problem is None
            assert record.location is not None
            values = load_tensor(record.location)
            assert (values.shape, values.dtype.name) == (record.shape, record.dtype)
    assert len(dump.problems) + sum(len(read.problems) for read in slices) == problems


def test_operators_have_names_types_calls_and_the_order_of_their_times(unpacked: Unpacked) -> None:
    archive = unpacked("msit/torchair")
    _, (fx, *_) = read_all(archive / "msit_fx_dump")
    assert [(node.name, node.type_name, node.call) for node in fx.nodes] == [
        ("mm-aten.mm.default", "aten.mm", 0),
        ("add-aten.add.Tensor", "aten.add", 0),
        ("sigmoid-aten.sigmoid.default", "aten.sigmoid", 0),
        ("mul-aten.mul.Tensor", "aten.mul", 0),
        ("sum_1-aten.sum.dim_IntList", "aten.sum", 1),
    ]
    _, (ge, *_) = read_all(archive / "msit_ge_dump")
    assert [(node.name, node.path, node.call, node.type_name) for node in ge.nodes] == [
        ("MatMul", "MatMul", 0, "MatMulV2"),
        ("Add_1Sigmoid_1Mul_1", "Add_1Sigmoid_1Mul", 1, "Add+Sigmoid+Mul"),
        ("ReduceSum", "ReduceSum", 0, "ReduceSumD"),
        ("trans_Cast_9", "trans_Cast", 9, "Cast"),
    ]
    assert ge.order_origin == fx.order_origin == RECORDED_ORDER
    assert ge.nodes[2].sources == (
        Source("sum_1-aten.sum.dim_IntList", (("input.0", "input.0"), ("output.0", "output.0"))),
    )
    assert ge.nodes[3].sources == ()


@pytest.mark.parametrize(
    ("part", "form", "tokens"),
    [
        ("msit_fx_dump/worldsize1_global_rank0", "torchair-fx", [0, 1, 2]),
        ("msit_fx_dump/worldsize1_global_rank0/graph_1/1", "torchair-fx", [1]),
        ("msit_ge_dump/worldsize1_global_rank0", "torchair-ge", [0, 1, 2]),
        ("msit_ge_dump/worldsize1_global_rank0/20250101000000/0/graph_1_0/1/2", "torchair-ge", [2]),
    ],
)
def test_a_part_of_a_dump_may_be_named_and_the_text_of_its_graph_is_still_found(
    unpacked: Unpacked, part: str, form: str, tokens: list[int]
) -> None:
    dump, slices = read_all(unpacked("msit/torchair") / part)
    assert dump.format == form
    assert [(one.coordinates.rank, one.coordinates.token) for one in slices] == [
        (0, token) for token in tokens
    ]
    if form == "torchair-ge":
        assert slices[0].nodes[0].sources


def test_a_folder_of_both_forms_names_them(unpacked: Unpacked) -> None:
    assert recognise(unpacked("msit/torchair")) is None
    with refuses(DumpNotRecognisedError, "dumps.several", dumps=("msit_fx_dump", "msit_ge_dump")):
        open_dump(unpacked("msit/torchair"))


def test_a_folder_that_both_forms_were_written_into_says_which_is_read(
    unpacked: Unpacked, tmp_path: Path
) -> None:
    for side in ("fx", "ge"):
        shutil.copytree(
            unpacked("msit/torchair") / f"msit_{side}_dump", tmp_path / "both", dirs_exist_ok=True
        )
    dump = open_dump(tmp_path / "both")
    assert dump.format == "torchair-fx"
    assert len(dump.slices) == 3
    (problem,) = dump.problems
    assert problem.reason.id == "dumps.torchair.ge_left_out"
    below = tmp_path / "both/worldsize1_global_rank0/20250101000000"
    assert open_dump(below).format == "torchair-ge"


def test_the_layout_of_older_releases_counts_tokens_from_one_and_has_no_ranks(tmp_path: Path) -> None:
    for token in (1, 2):
        for graph in ("20250101000000", "20250101000009"):
            folder = tmp_path / f"fx/data_dump/{token}/gm_{graph}_dump"
            write_fx(folder, "mm-aten.mm.default", 1, [floats(2)], [floats(2)])
        write_ge(
            tmp_path / f"ge/20250101000000/0/graph_1_0/1/{token - 1}",
            "MatMulV2",
            "MatMul",
            1,
            [],
            [floats(2)],
        )
    fx, slices = read_all(tmp_path / "fx")
    assert fx.format == "torchair-fx"
    assert [one.coordinates for one in slices] == [Coordinates(token=0), Coordinates(token=1)]
    assert names(slices[0]) == [
        "graph_1.mm-aten.mm.default",
        "graph_1",
        "graph_2.mm-aten.mm.default",
        "graph_2",
    ]
    ge, slices = read_all(tmp_path / "ge")
    assert ge.format == "torchair-ge"
    assert [one.coordinates for one in slices] == [Coordinates(token=0), Coordinates(token=1)]
    assert [problem.reason.id for problem in ge.problems] == ["dumps.torchair.no_graph_text"]
    assert open_dump(tmp_path / "fx/data_dump/2").slices[0].coordinates == Coordinates(token=1)


def test_ranks_are_told_apart_by_folder_or_by_device(tmp_path: Path) -> None:
    for rank in (0, 1):
        folder = tmp_path / f"new/worldsize2_global_rank{rank}/20250101000000/{rank}/graph_1_0/1/0"
        write_ge(folder, "Add", "Add", 1, [], [floats(2)])
        write_ge(tmp_path / f"old/20250101000000/{rank}/graph_1_0/1/0", "Add", "Add", 1, [], [floats(2)])
    for layout in ("new", "old"):
        assert [one.coordinates.rank for one in open_dump(tmp_path / layout).slices] == [0, 1]


def test_several_graphs_of_a_token_are_modules_of_one_slice(tmp_path: Path) -> None:
    root = tmp_path / "worldsize1_global_rank0/20250101000000/0"
    write_ge(root / "graph_2_0/2/0", "Add", "Add", 5, [], [floats(2)])
    write_ge(root / "graph_1_0/1/0", "Add", "Add", 9, [], [floats(2)])
    write_ge(root / "graph_1_0/1/1", "Add", "Add", 12, [], [floats(2)])
    for number in (1, 2):
        name = f"add_{number}-aten.add.Tensor"
        text = operator("Add", "Add", ["x:0", "y:0"], f"{name}.OUTPUT.0")
        write(tmp_path / TEXT.format(number), text.encode())
    _, (first, second) = read_all(tmp_path)
    assert [(node.name, node.parent, node.kind.value) for node in first.nodes] == [
        ("graph_2.Add", "graph_2", "api"),
        ("graph_2", None, "module"),
        ("graph_1.Add", "graph_1", "api"),
        ("graph_1", None, "module"),
    ]
    assert [node.order for node in first.nodes] == [0, 1, 2, 3]
    assert [node.sources[0].node for node in first.nodes if node.sources] == [
        "add_2-aten.add.Tensor",
        "add_1-aten.add.Tensor",
    ]
    assert names(second) == ["graph_1.Add", "graph_1"]


def test_of_two_runs_in_one_folder_the_second_is_left_out_and_named(tmp_path: Path) -> None:
    for time in ("20250101000000", "20250202000000"):
        write_ge(
            tmp_path / f"worldsize1_global_rank0/{time}/0/graph_1_0/1/0", "Add", "Add", 1, [], [floats(2)]
        )
    dump, (read,) = read_all(tmp_path)
    assert "20250101" in str(read.listing.directory)
    assert any(
        "20250202000000" in one.file and one.reason.id == "dumps.torchair.run_twice" for one in dump.problems
    )
    assert len(open_dump(tmp_path / "worldsize1_global_rank0/20250202000000").slices) == 1


def test_without_the_text_of_the_graph_all_is_read_but_origins(unpacked: Unpacked, tmp_path: Path) -> None:
    shutil.copytree(unpacked("msit/torchair") / "msit_ge_dump", tmp_path / "ge")
    for text in (tmp_path / "ge").glob("*.txt"):
        text.unlink()
    dump, slices = read_all(tmp_path / "ge")
    assert [problem.reason for problem in dump.problems] == [Message.of("dumps.torchair.no_graph_text")]
    assert all(not node.sources for read in slices for node in read.nodes)


def test_of_several_texts_the_one_of_the_same_number_is_taken_if_it_knows_the_operators(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "worldsize1_global_rank0/20250101000000/0/graph_1_0/1/0"
    write_ge(folder, "Add", "Add", 1, [], [floats(2)])
    for number, name in ((1, "Other"), (2, "Add")):
        text = operator(name, "Add", [], f"from_{number}-aten.add.Tensor.OUTPUT.0")
        write(tmp_path / TEXT.format(number), text.encode())
    _, (read,) = read_all(tmp_path)
    assert read.nodes[0].sources[0].node == "from_2-aten.add.Tensor"
    text = operator("Add", "Add", [], "from_1-aten.add.Tensor.OUTPUT.0")
    write(tmp_path / TEXT.format(1), text.encode())
    _, (read,) = read_all(tmp_path)
    assert read.nodes[0].sources[0].node == "from_1-aten.add.Tensor"


def test_an_operator_never_comes_before_what_it_takes(tmp_path: Path) -> None:
    folder = tmp_path / "worldsize1_global_rank0/20250101000000/0/graph_1_0/1/0"
    for at, name in enumerate(["Late", "Early", "Last"]):
        write_ge(folder, "Add", name, at, [], [floats(2)])
    text = operator("Early", "Add", ["x:0"], "") + operator("Late", "Add", ["Early:0"], "")
    write(tmp_path / TEXT.format(1), text.encode())
    _, (read,) = read_all(tmp_path)
    assert names(read) == ["Early", "Late", "Last"]
    assert read.order_origin.message == Message.of("dumps.order.recorded_but_moved", operators=2)


@pytest.fixture
def ge_copy(unpacked: Unpacked, tmp_path: Path) -> Path:
    shutil.copytree(unpacked("msit/torchair") / "msit_ge_dump", tmp_path / "ge")
    return tmp_path / "ge/worldsize1_global_rank0/20250101000000/0/graph_1_0/1/0"


@pytest.fixture
def fx_copy(unpacked: Unpacked, tmp_path: Path) -> Path:
    shutil.copytree(unpacked("msit/torchair") / "msit_fx_dump", tmp_path / "fx")
    return tmp_path / "fx/worldsize1_global_rank0/graph_1/0"


def first(folder: Path, pattern: str) -> Path:
    return next(iter(sorted(folder.glob(pattern))))


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        (b"", "dumps.file.empty"),
        (b"garbage garbage", "dumps.ge.not_one"),
        (b"\1" + bytes(8), "dumps.protobuf.field_zero"),
        (bytes(9), "dumps.file.no_tensor"),
    ],
)
def test_a_damaged_file_spoils_its_own_operator_only(ge_copy: Path, contents: bytes, reason: str) -> None:
    first(ge_copy, "MatMul*").write_bytes(contents)
    _, (read, *_) = read_all(ge_copy.parents[5])
    assert len(read.nodes) == 4
    damaged = next(node for node in read.nodes if node.name == "MatMul")
    problems = [record.problem for record in damaged.tensors] + [one.reason for one in read.problems]
    assert [reason in ids_of(problem) for problem in problems] == [True]
    others = [record for node in read.nodes for record in node.tensors if node is not damaged]
    assert all(record.problem is None for record in others)


def test_a_damaged_array_spoils_its_own_tensor_only(fx_copy: Path) -> None:
    first(fx_copy, "mm-*OUTPUT*").write_bytes(b"nothing")
    _, (read, *_) = read_all(fx_copy.parents[2])
    problems = [record.problem for node in read.nodes for record in node.tensors if record.problem]
    assert len(problems) == 1
    assert "dumps.npy.not_one" in ids_of(problems[0])


def test_a_second_file_of_an_operator_is_listed_beside_it(ge_copy: Path) -> None:
    large = first(ge_copy, "MatMul*")
    write(ge_copy / "MatMulV2.MatMul.2.7.1734070081497999", ge_file([], [floats(2)]))
    _, (read, *_) = read_all(ge_copy.parents[5])
    nodes = {node.name: node for node in read.nodes}
    assert [len(nodes[name].tensors) for name in ("MatMul", "MatMul#1")] == [3, 1]
    assert [bool(nodes[name].sources) for name in ("MatMul", "MatMul#1")] == [True, False]
    assert nodes["MatMul"].tensors[0].location is not None
    assert nodes["MatMul"].tensors[0].location.file == large
    assert any(
        problem.reason == Message.of("dumps.torchair.file_twice", name="MatMul") for problem in read.problems
    )


def test_the_header_gives_a_name_that_a_file_cannot_have(ge_copy: Path) -> None:
    contents = ge_file([], [floats(2)], name="model/layers.0/Add_3")
    write(ge_copy / "Add.model_layers.0_Add_3.9.7.1734070081499999", contents)
    write(ge_copy / "Add.Other.9.8.1734070081499999", contents)
    _, (read, *_) = read_all(ge_copy.parents[5])
    assert names(read)[-2:] == ["Other", "model/layers.0/Add_3"]


def test_operators_whose_headers_give_one_name_are_told_apart(ge_copy: Path) -> None:
    contents = ge_file([], [floats(2)], name="model/Add")
    write(ge_copy / "Add.model_Add.9.7.1734070081499998", contents)
    write(ge_copy / "Add.model.Add.9.7.1734070081499999", contents)
    _, (read, *_) = read_all(ge_copy.parents[5])
    assert names(read)[-2:] == ["model/Add", "model/Add#1"]
    assert any(
        problem.reason == Message.of("dumps.torchair.name_twice", name="model/Add")
        for problem in read.problems
    )


def test_names_too_long_for_files_are_found_in_the_table_beside_them(ge_copy: Path) -> None:
    write(ge_copy / "1234567890", ge_file([], [floats(2)]))
    write(ge_copy / "mapping.csv", b"1234567890,Add.a_long_name.9.7.1734070081499999\n")
    _, (read, *_) = read_all(ge_copy.parents[5])
    assert (read.nodes[-1].name, read.nodes[-1].type_name) == ("a_long_name", "Add")
    assert not read.problems


def test_what_is_not_part_of_a_dump_is_counted(ge_copy: Path, fx_copy: Path) -> None:
    for folder, top in ((ge_copy, ge_copy.parents[5]), (fx_copy, fx_copy.parents[2])):
        write(folder / "readme.md", b"?")
        (folder / "more").mkdir()
        _, (read, *_) = read_all(top)
        assert [problem.reason for problem in read.problems] == [passed_over("more", "readme.md")]


def test_links_out_of_the_dump_are_not_followed(ge_copy: Path, fx_copy: Path, tmp_path: Path) -> None:
    secret = write(tmp_path / "secret", ge_file([], [floats(2)]))
    (ge_copy / "Add.Linked.9.7.1734070081499999").symlink_to(secret)
    _, (read, *_) = read_all(ge_copy.parents[5])
    (record,) = next(node for node in read.nodes if node.name == "Linked").tensors
    assert record.location is None
    assert record.problem is not None
    assert "dumps.link.leads_out" in ids_of(record.problem)
    np.save(tmp_path / "secret.npy", np.ones(2))
    (fx_copy / "x-aten.relu.default.OUTPUT.0.20250101000000000009.npy").symlink_to(tmp_path / "secret.npy")
    _, (read, *_) = read_all(fx_copy.parents[2])
    assert "dumps.link.leads_out" in ids_of(read.nodes[-1].tensors[0].problem)


def test_hostile_names_are_read_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "worldsize1_global_rank0/graph_<b>1/0"
    write_fx(folder, "<script>\n-aten.mm.default", 1, [], [floats(2)])
    odd = os.fsencode(folder) + b"/\xff-aten.mm.default.OUTPUT.0.20250101000000000002.npy"
    shutil.copy(next(folder.iterdir()), odd)
    _, (read,) = read_all(tmp_path)
    assert names(read) == ["<script>\n-aten.mm.default", "\\xff-aten.mm.default"]


def test_what_looks_like_a_dump_but_holds_no_operators_is_damaged(tmp_path: Path) -> None:
    write(tmp_path / TEXT.format(1), b"op { }")
    np.save(tmp_path / "a.npy", np.ones(2))
    with refuses(DumpUnreadableError, "dumps.damaged"):
        open_dump(tmp_path)


def test_a_token_that_is_gone_is_said_to_be_so(fx_copy: Path) -> None:
    dump = open_dump(fx_copy.parents[2])
    shutil.rmtree(fx_copy)
    with refuses(DumpUnreadableError, "dumps.token_gone"):
        read_slice(dump, dump.slices[0])


def test_libraries_of_a_system_are_no_dump(tmp_path: Path) -> None:
    write(tmp_path / "libfoo.so.1.2.3", b"\x7fELF")
    write(tmp_path / "archive.tar.1.2.20250101", b"")
    assert recognise(tmp_path) is None
