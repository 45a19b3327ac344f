"""Folders of tensor files: names say whose a tensor is, what it is and when it was made."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from messages import problem_of, refuses
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

from firstdrift.comparison.compare import compare
from firstdrift.dumps.plain import PlainReader
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import DumpNotRecognisedError, DumpUnreadableError
from firstdrift.model.node import Direction
from firstdrift.model.slice import Coordinates, OrderSource, Slice
from firstdrift.wording.message import Message

READER = PlainReader()


def write(root: Path, *names: str) -> Path:
    """Write a small array under each name."""
    for name in names:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".npy":
            np.save(file, np.ones((2, 3), "f4"))
        else:
            torch.save(torch.ones(2, 3), file)
    return root


def read_only(path: Path) -> Slice:
    dump = READER.open_dump(path)
    (listing,) = dump.slices
    return READER.read_slice(dump, listing)


def tensors(read: Slice) -> dict[str, list[str]]:
    return {node.name: [record.label for record in node.tensors] for node in read.nodes if node.tensors}


@pytest.mark.parametrize(
    ("name", "node", "label"),
    [
        ("layers.0.attn.out.npy", "layers.0.attn.out", "output.0"),
        ("layers/0/attn/out.npy", "layers.0.attn.out", "output.0"),
        ("layers.0.attn.input.1.pt", "layers.0.attn", "input.1"),
        ("layers.0.attn.input_1.pt", "layers.0.attn", "input.1"),
        ("layers.0.attn_input_0.pt", "layers.0.attn", "input.0"),
        ("layers.0.attn.output.pth", "layers.0.attn", "output.0"),
        ("layers.0.attn/output_0_1.pth", "layers.0.attn", "output.0.1"),
        ("layers.0.attn/inputs.pt", "layers.0.attn", "input.0"),
        ("layers.0.q_proj.weight.npy", "layers.0.q_proj", "parameter.weight"),
        ("layers.0.q_proj.bias.grad.npy", "layers.0.q_proj", "gradient.bias"),
        ("layers.0.q_proj.weight_scale.npy", "layers.0.q_proj", "parameter.weight_scale"),
        ("output.npy", "tensor", "output.0"),
        ("logits.bin", "logits", "output.0"),
    ],
)
def test_names_say_node_role_and_key(tmp_path: Path, name: str, node: str, label: str) -> None:
    assert tensors(read_only(write(tmp_path, name))) == {node: [label]}


@pytest.mark.parametrize(
    ("names", "coordinates"),
    [
        (["token3/x.npy", "token_10/x.npy"], [Coordinates(token=3), Coordinates(token=10)]),
        (["0/x.npy", "1/x.npy"], [Coordinates(token=0), Coordinates(token=1)]),
        (["layers/0/x.npy"], [Coordinates()]),
        (["0/x.npy", "other/x.npy"], [Coordinates()]),
        (["step0/rank1/x.npy", "step0/rank0/x.npy"], [Coordinates(0, 0), Coordinates(0, 1)]),
        (["rank1/step2/x.npy"], [Coordinates(2, 1)]),
        (["step0/layers/step1/x.npy"], [Coordinates(step=0)]),
        (["token0.pt", "token1.pt"], [Coordinates(token=0), Coordinates(token=1)]),
        (["x.npy", "step1/x.npy"], [Coordinates(), Coordinates(step=1)]),
    ],
)
def test_folders_say_step_rank_and_token_where_that_is_beyond_doubt(
    tmp_path: Path, names: list[str], coordinates: list[Coordinates]
) -> None:
    dump = READER.open_dump(write(tmp_path, *names))
    assert [listing.coordinates for listing in dump.slices] == coordinates
    found = [tensor for listing in dump.slices for tensor in tensors(READER.read_slice(dump, listing))]
    assert len(found) == len(names)


def test_modules_around_the_named_nodes_are_nodes_too(tmp_path: Path) -> None:
    read = read_only(write(tmp_path, "layers.0.attn.out.npy"))
    assert [(node.name, node.parent) for node in read.nodes] == [
        ("layers.0.attn.out", "layers.0.attn"),
        ("layers.0.attn", "layers.0"),
        ("layers.0", "layers"),
        ("layers", None),
    ]
    assert {node.direction for node in read.nodes} == {Direction.NONE}


def test_the_order_follows_numbers_and_well_known_names(tmp_path: Path) -> None:
    names = [f"layers.{n}.{m}.npy" for n in (10, 2) for m in ("mlp", "self_attn", "input_layernorm")]
    read = read_only(write(tmp_path, *names, "lm_head.npy", "embed_tokens.npy"))
    assert [node.name for node in read.nodes if node.tensors] == [
        "embed_tokens",
        *(f"layers.{n}.{m}" for n in (2, 10) for m in ("input_layernorm", "self_attn", "mlp")),
        "lm_head",
    ]
    assert read.order_origin.source is OrderSource.NAMES


def test_a_checkpoint_in_parts_is_one_tree_of_parameters(tmp_path: Path) -> None:
    save_file(
        {
            "model.layers.0.q_proj.weight": np.ones((2, 2), "f4"),
            "model.layers.0.q_proj.bias": np.ones(2, "f4"),
        },
        tmp_path / "model-00001-of-00002.safetensors",
    )
    save_file({"lm_head.weight": np.ones((2, 2), "f4")}, tmp_path / "model-00002-of-00002.safetensors")
    read = read_only(tmp_path)
    assert tensors(read) == {
        "model.layers.0.q_proj": ["parameter.bias", "parameter.weight"],
        "lm_head": ["parameter.weight"],
    }


def test_many_tensors_without_paths_hang_below_their_file(tmp_path: Path) -> None:
    write(tmp_path, "other.npy")
    torch.save({"q": torch.ones(2), "parts": [torch.ones(3), torch.ones(4)]}, tmp_path / "attn.pt")
    torch.save((torch.ones(2), (torch.ones(3),)), tmp_path / "mlp.output.pt")
    assert tensors(read_only(tmp_path)) == {
        "attn.q": ["output.0"],
        "parts.0": ["output.0"],
        "parts.1": ["output.0"],
        "mlp": ["output.0", "output.1.0"],
        "other": ["output.0"],
    }


def test_a_tuple_in_a_file_named_after_a_path_is_what_that_module_gave(tmp_path: Path) -> None:
    write(tmp_path, "layers.0.npy")
    values = torch.ones(2), (torch.ones(3), torch.ones(4))
    torch.save(values, tmp_path / "layers.0.attn.pt")
    torch.save(values[1], tmp_path / "hidden_states.pt")
    assert tensors(read_only(tmp_path)) == {
        "layers.0": ["output.0"],
        "layers.0.attn": ["output.0", "output.1.0", "output.1.1"],
        "hidden_states.0": ["output.0"],
        "hidden_states.1": ["output.0"],
    }


def test_a_single_file_is_a_dump(tmp_path: Path) -> None:
    write(tmp_path, "token3.golden.npy", "b.pt")
    assert READER.recognise(tmp_path / "b.pt") == (Message.of("dumps.plain.is_file", suffix=".pt"),)
    for name in "token3.golden.npy", "b.pt":
        read = read_only(tmp_path / name)
        assert tensors(read) == {"tensor": ["output.0"]}
        assert read.coordinates == Coordinates()


def test_any_two_files_of_one_tensor_can_be_compared(tmp_path: Path) -> None:
    array = np.arange(6, dtype="f4").reshape(2, 3)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "b.npz", array)
    torch.save({"value": torch.from_numpy(array)}, tmp_path / "c.pt")
    save_file({"data": array}, tmp_path / "d.safetensors")
    header = b"$Version=1.0\n$Object.Count=1\n$Object.Length=24\nformat=2\ndtype=0\ndims=2,3\n"
    (tmp_path / "e.bin").write_bytes(header + b"$Object.data=0,24\n$End=1\n" + array.tobytes())
    for name in "a.npy", "b.npz", "c.pt", "d.safetensors", "e.bin":
        read = read_only(tmp_path / name)
        assert tensors(read) == {"tensor": ["output.0"]}
        ((record,),) = [node.tensors for node in read.nodes]
        assert record.location is not None
        np.testing.assert_array_equal(load_tensor(record.location), array)


@pytest.mark.parametrize("container", ["pt", "safetensors", "npz"])
@pytest.mark.parametrize(
    "dtype",
    [
        *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("complex64", "complex128"),
    ],
)
def test_every_dtype_is_read_and_compared(tmp_path: Path, container: str, dtype: str) -> None:
    if (container, dtype) == ("safetensors", "complex128"):
        pytest.skip("safetensors has no such dtype")
    if container == "npz" and dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        pytest.skip("numpy has no such dtype")
    golden = torch.arange(1, 25, dtype=torch.float64).reshape(4, 6) % 7
    target = golden.clone()
    target[2, 3:] = 0
    for side, values in (("golden", golden), ("target", target)):
        (tmp_path / side).mkdir()
        kind = getattr(torch, dtype)
        saved = {"a.output": golden.to(kind), "b.output": values.clone().to(kind)}
        if container == "pt":
            torch.save(saved, tmp_path / side / "x.pt")
        elif container == "npz":
            np.savez(tmp_path / side / "x.npz", **{name: tensor.numpy() for name, tensor in saved.items()})
        else:
            save_torch(saved, tmp_path / side / "x.safetensors")
    report = compare(tmp_path / "golden", tmp_path / "target")
    assert (report.counts.pairs, report.counts.incomparable) == (2, 0)
    errors = [measured.errors for result in report.slices for measured in result.measurements]
    assert sorted(error.equal for error in errors if error) == [21, 24]
    assert compare(tmp_path / "golden", tmp_path / "golden").counts.passed == 2


def test_four_bits_in_safetensors_are_read(tmp_path: Path) -> None:
    bits = torch.arange(16, dtype=torch.uint8)
    packed = (bits[::2] | bits[1::2] << 4).reshape(2, 4).view(torch.float4_e2m1fn_x2)
    save_torch({"a.weight": packed}, tmp_path / "x.safetensors")
    (record,) = next(node.tensors for node in read_only(tmp_path).nodes if node.tensors)
    assert (record.dtype, record.shape, record.problem) == ("float4_e2m1fn", (2, 8), None)
    assert record.location is not None
    positive = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    values = load_tensor(record.location)
    np.testing.assert_array_equal(values, [positive, [-value for value in positive]])


def test_records_lead_to_the_data(tmp_path: Path) -> None:
    save_file({"a.b": np.arange(6, dtype="f4").reshape(2, 3)}, tmp_path / "x.safetensors")
    (node,) = [node for node in read_only(tmp_path).nodes if node.tensors]
    (record,) = node.tensors
    assert record.location is not None
    values = load_tensor(record.location)
    assert (record.dtype, record.shape) == (values.dtype.name, values.shape) == ("float32", (2, 3))


def test_a_bad_file_spoils_only_itself(tmp_path: Path) -> None:
    write(tmp_path, "a.npy", "b.npy")
    (tmp_path / "a.npy").write_bytes(b"")
    (tmp_path / "c.bin").write_bytes(b"weights of something else")
    torch.save({"epoch": 3}, tmp_path / "d.pt")
    problems = {node.name: node.tensors[0].problem for node in read_only(tmp_path).nodes}
    assert problems == {
        "a": problem_of("a.npy", "dumps.file.empty"),
        "b": None,
        "c": problem_of("c.bin", "dumps.pt.not_one"),
        "d": problem_of("d.pt", "dumps.file.no_tensor"),
    }


def test_a_name_that_two_files_claim_is_a_problem_and_both_are_kept(tmp_path: Path) -> None:
    read = read_only(write(tmp_path, "a/b.npy", "a.b.npy"))
    assert tensors(read) == {"a.b": ["output.0", "output.0#1"]}
    (problem,) = read.problems
    assert problem.reason == Message.of("dumps.file.tensor_twice", tensor="output.0", node="a.b")


def test_two_folders_of_one_token_are_not_mixed(tmp_path: Path) -> None:
    dump = READER.open_dump(write(tmp_path, "token3/x.npy", "token_3/y.npy"))
    (listing,) = dump.slices
    assert tensors(READER.read_slice(dump, listing)) == {"x": ["output.0"]}
    (problem,) = dump.problems
    assert problem.file == "token_3/y.npy"
    assert problem.reason == Message.of(
        "dumps.plain.slice_twice", holder="token3", slice=Coordinates(token=3).name()
    )


def test_files_that_are_gone_are_said_to_be_gone(tmp_path: Path) -> None:
    dump = READER.open_dump(write(tmp_path, "token3/x.npy"))
    (tmp_path / "token3/x.npy").unlink()
    with refuses(DumpUnreadableError, "dumps.plain.files_gone"):
        READER.read_slice(dump, dump.slices[0])


def test_what_is_not_read_is_named(tmp_path: Path) -> None:
    write(tmp_path, "a.npy", ".cache/b.npy")
    (tmp_path / "c.onnx").write_text("")
    (tmp_path / "link").symlink_to(tmp_path)
    dump = READER.open_dump(tmp_path)
    assert {problem.reason for problem in dump.problems} == {
        Message.of("dumps.plain.links_not_followed", links=("link",)),
        Message.of("dumps.plain.kinds_not_read", files=("c.onnx",)),
    }
    assert tensors(READER.read_slice(dump, dump.slices[0])) == {"a": ["output.0"]}


@pytest.mark.parametrize("name", ["notes.txt", "path.pth", "firmware.bin", "x.npy"])
def test_a_folder_without_tensors_is_no_dump(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("import something")
    assert READER.recognise(tmp_path) == ()


def test_an_empty_folder_is_no_dump(tmp_path: Path) -> None:
    assert READER.recognise(tmp_path) == ()
    with pytest.raises(DumpNotRecognisedError):
        READER.open_dump(tmp_path)


def test_file_names_that_are_no_text_become_text(tmp_path: Path) -> None:
    write(tmp_path, "a.npy")
    (tmp_path / "a.npy").rename(os.fsdecode(bytes(tmp_path) + b"/a\xff.npy"))
    (node,) = read_only(tmp_path).nodes
    assert node.name == "a\\xff"
    assert node.tensors[0].location is not None
    assert load_tensor(node.tensors[0].location).shape == (2, 3)
