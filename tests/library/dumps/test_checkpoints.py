"""Checkpoints: shards and their index, and quantised weights held against those they were made from."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from messages import ids_of, refuses
from safetensors.torch import save_file

from firstdrift.comparison.compare import compare
from firstdrift.dumps.checkpoint import fits
from firstdrift.dumps.containers.contents import DamagedError
from firstdrift.dumps.containers.quantised import dequantise
from firstdrift.dumps.detect import open_dump
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import FirstdriftError, TensorUnreadableError
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.parallel.slices import read_slice
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

NAMES = [f"model.layers.{layer}.mlp.down_proj.weight" for layer in range(4)]


def weights(scale: float = 1.0) -> dict[str, torch.Tensor]:
    made = torch.Generator().manual_seed(1)
    found = {name: torch.randn(24, 32, generator=made) for name in NAMES}
    found[NAMES[2]] *= scale
    return found | {
        "model.norm.weight": torch.rand(32, generator=made),
        "model.layers.0.A_log": torch.ones(4),
    }


def write_shards(folder: Path, tensors: dict[str, torch.Tensor], kind: str = "safetensors") -> Path:
    """Write a checkpoint in two shards with an index, as Hugging Face lays it out."""
    folder.mkdir(parents=True, exist_ok=True)
    stem, suffix = ("model", ".safetensors") if kind == "safetensors" else ("pytorch_model", ".bin")
    names = list(tensors)
    halves = names[: len(names) // 2], names[len(names) // 2 :]
    weight_map = {}
    for number, half in enumerate(halves, 1):
        file = folder / f"{stem}-{number:05}-of-00002{suffix}"
        shard = {name: tensors[name] for name in half}
        save_file(shard, file) if kind == "safetensors" else torch.save(shard, file)
        weight_map |= dict.fromkeys(half, file.name)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / f"{stem}{suffix}.index.json").write_text(json.dumps(index))
    return folder


def read(path: Path) -> Slice:
    dump = open_dump(path)
    (listing,) = dump.slices
    return read_slice(dump, listing)


def records(path: Path) -> dict[str, TensorRecord]:
    return {f"{node.path}.{record.key}": record for node in read(path).nodes for record in node.tensors}


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_all_shards_are_one_tree_of_parameters(tmp_path: Path, kind: str) -> None:
    found = records(write_shards(tmp_path / "c", weights(), kind))
    assert found.keys() == weights().keys()
    assert {record.role for record in found.values()} == {Role.PARAMETER}
    assert not any(record.problem for record in found.values())


def test_checkpoints_of_two_kinds_are_compared_and_the_wrong_weight_is_named(tmp_path: Path) -> None:
    golden = write_shards(tmp_path / "golden", weights())
    torch.save(weights(scale=3.0), tmp_path / "target.pt")
    report = compare(golden, tmp_path / "target.pt")
    assert report.counts.pairs == 6
    assert report.findings.first_bad_node is not None
    assert report.findings.first_bad_node.module == NAMES[2].removesuffix(".weight")
    assert report.findings.first_bad_node.node_class == "weights differ"
    assert compare(golden, write_shards(tmp_path / "same", weights(), "bin")).counts.error == 0


def missing(shard: str) -> Message:
    return Message.of("dumps.checkpoint.shards_missing", count=1, shards=(shard,))


def test_a_missing_shard_spoils_its_own_tensors_and_is_named(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "c", weights())
    (folder / "model-00002-of-00002.safetensors").unlink()
    found = records(folder)
    assert found.keys() == weights().keys()
    problems = {name: record.problem for name, record in found.items() if record.problem}
    assert set(problems) == set(list(weights())[3:])
    assert set(problems.values()) == {
        Message.of("dumps.checkpoint.shard_missing", shard="model-00002-of-00002.safetensors")
    }
    (problem,) = read(folder).problems
    assert problem.reason == missing("model-00002-of-00002.safetensors")
    report = compare(write_shards(tmp_path / "whole", weights()), folder)
    assert (report.counts.passed, report.counts.incomparable) == (3, 3)


def test_a_damaged_shard_spoils_its_own_tensors(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "c", weights())
    file = folder / "model-00001-of-00002.safetensors"
    file.write_bytes(file.read_bytes()[:20])
    problems = {name: record.problem for name, record in records(folder).items() if record.problem}
    assert set(problems) == set(list(weights())[:3])
    assert all("dumps.safetensors.not_one" in ids_of(problem) for problem in problems.values())


def test_shards_without_an_index_are_counted(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "c", weights())
    (folder / "model.safetensors.index.json").unlink()
    (folder / "model-00001-of-00002.safetensors").unlink()
    slice_ = read(folder)
    assert [problem.reason for problem in slice_.problems] == [missing("model-00001-of-00002.safetensors")]


def test_a_missing_shard_is_named_in_text_that_can_be_stored(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "c", weights())
    (folder / "model.safetensors.index.json").unlink()
    (folder / "model-00001-of-00002.safetensors").unlink()
    last = folder / "model-00002-of-00002.safetensors"
    last.rename(folder / os.fsdecode(b"m\xff-00002-of-00002.safetensors"))
    (problem,) = read(folder).problems
    assert problem.reason == missing(r"m\xff-00001-of-00002.safetensors")


@pytest.mark.parametrize("text", ["", "[]", '{"weight_map": 3}', '{"weight_map": {"a.b": 1}}', "{"])
def test_a_damaged_index_is_a_problem_and_the_shards_are_read(tmp_path: Path, text: str) -> None:
    folder = write_shards(tmp_path / "c", weights())
    (folder / "model.safetensors.index.json").write_text(text)
    assert records(folder).keys() == weights().keys()
    assert [problem.file for problem in read(folder).problems] == ["model.safetensors.index.json"]


def quantised(tensor: torch.Tensor, shape: tuple[int, ...], *, offset: bool) -> dict[str, torch.Tensor]:
    """Quantise to int8 with a scale of a shape, as tools for weights of eight bits do."""
    blocks = [-(-size // count) for size, count in zip(tensor.shape, shape, strict=True)]
    low, high = torch.zeros(shape), torch.zeros(shape)
    for at in np.ndindex(*shape):
        part = tensor[tuple(slice(i * b, (i + 1) * b) for i, b in zip(at, blocks, strict=True))]
        low[at], high[at] = (part.min(), part.max()) if offset else (-part.abs().max(), part.abs().max())
    scale = (high - low) / 254
    zero = torch.round(-127 - low / scale) if offset else torch.zeros(shape)
    whole = [scale, zero]
    for axis, block in enumerate(blocks):
        whole = [each.repeat_interleave(block, axis).narrow(axis, 0, tensor.shape[axis]) for each in whole]
    found = {
        "weight": torch.clamp(torch.round(tensor / whole[0]) + whole[1], -128, 127).to(torch.int8),
        "weight_scale": scale,
    }
    return found | ({"weight_offset": zero} if offset else {})


def quantise_all(shape: tuple[int, ...], *, offset: bool, scale: float = 1.0) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for name, tensor in weights(scale).items():
        if name in NAMES:
            node = name.removesuffix(".weight")
            parts = quantised(tensor, shape, offset=offset)
            found |= {f"{node}.{key}": part for key, part in parts.items()}
        else:
            found[name] = tensor
    return found


@pytest.mark.parametrize("offset", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (24, 1), (24, 4), (3, 2)])
def test_a_quantised_checkpoint_agrees_with_the_one_it_was_made_from(
    tmp_path: Path, shape: tuple[int, ...], offset: bool
) -> None:
    golden = write_shards(tmp_path / "golden", weights())
    target = write_shards(tmp_path / "target", quantise_all(shape, offset=offset))
    report = compare(golden, target)
    assert (report.counts.pairs, report.counts.passed) == (6, 6)
    scales = ("weight_scale", "weight_offset")[: 1 + offset]
    said = Message.of("matching.transform.dequantised", side=side_named("target"), scales=scales)
    pairs = [pair for result in report.slices for pair in result.plan.pairs]
    assert {pair.transform for pair in pairs if pair.target.dtype == "quantised int8"} == {(said,)}
    assert sum(pair.target.dtype == "quantised int8" for pair in pairs) == 4


def test_the_numbers_are_those_of_msit(unpacked: Callable[[str], Path]) -> None:
    """What `msit llm compare -w` reported of these files: cosine similarity, relative Euclidean distance."""
    dumps = unpacked("msit/quantised_weights")
    report = compare(dumps / "golden", dumps / "my")
    (result,) = report.slices
    found = {
        pair.target_node: measured.errors
        for pair, measured in zip(result.plan.pairs, result.measurements, strict=True)
        if [step.arguments.get("scales") for step in pair.transform] == [("weight_scale", "weight_offset")]
    }
    of_msit = {
        "model.layers.0.mlp.down_proj": (0.9999824488, 0.0059247054159641),
        "model.layers.0.self_attn.q_proj": (0.9999839914, 0.0056679886765778),
    }
    assert found.keys() == of_msit.keys()
    for node, (cosine, distance) in of_msit.items():
        errors = found[node]
        assert errors is not None
        assert errors.cosine_similarity == pytest.approx(cosine, abs=1e-9)
        assert errors.relative_l2 == pytest.approx(distance, rel=1e-6)
    assert report.counts.error == 0


def test_a_wrong_scale_is_found(tmp_path: Path) -> None:
    golden = write_shards(tmp_path / "golden", weights())
    wrong = quantise_all((24, 1), offset=True)
    wrong["model.layers.1.mlp.down_proj.weight_scale"] *= 1.1
    report = compare(golden, write_shards(tmp_path / "target", wrong))
    assert report.findings.first_bad_node is not None
    assert report.findings.first_bad_node.module == "model.layers.1.mlp.down_proj"


def test_two_quantised_checkpoints_have_to_agree_exactly(tmp_path: Path) -> None:
    made = quantise_all((24, 1), offset=True)
    golden = write_shards(tmp_path / "golden", made)
    made[NAMES[3]][5, 6] += 1
    report = compare(golden, write_shards(tmp_path / "target", made))
    assert report.findings.first_bad_node is not None
    assert report.findings.first_bad_node.module == NAMES[3].removesuffix(".weight")


def test_weights_of_eight_bits_floating_with_blocks_are_read(tmp_path: Path) -> None:
    """The last blocks are smaller: 192 x 160 in blocks of 128 x 128."""
    weight = torch.randn(192, 160, generator=torch.Generator().manual_seed(2))
    scale = torch.rand(2, 2) + 0.5
    spread = scale.repeat_interleave(128, 0)[:192].repeat_interleave(128, 1)[:, :160]
    stored = (weight / spread).to(torch.float8_e4m3fn)
    save_file({"a.weight": stored, "a.weight_scale_inv": scale}, tmp_path / "x.safetensors")
    record = records(tmp_path)["a.weight"]
    assert record.dtype == "quantised float8_e4m3fn"
    assert record.location is not None
    expected = stored.float() * spread
    np.testing.assert_array_equal(load_tensor(record.location), expected.numpy())


def test_four_bits_packed_in_words_are_read(tmp_path: Path) -> None:
    values = torch.randint(-8, 8, (6, 32), generator=torch.Generator().manual_seed(3))
    words = torch.zeros(6, 4, dtype=torch.int64)
    for at in range(8):
        words |= ((values[:, at::8] + 8) & 0xF) << (4 * at)
    scale = torch.rand(6, 2)
    save_file(
        {
            "a.weight_packed": words.to(torch.int32),
            "a.weight_scale": scale,
            "a.weight_shape": torch.tensor([6, 32]),
        },
        tmp_path / "x.safetensors",
    )
    record = records(tmp_path)["a.weight"]
    assert (record.dtype, record.shape) == ("quantised int4", (6, 32))
    assert record.location is not None
    expected = values * scale.repeat_interleave(16, 1)
    np.testing.assert_array_equal(load_tensor(record.location), expected.float().numpy())


def test_whole_numbers_without_a_scale_that_fits_stay_what_they_are(tmp_path: Path) -> None:
    weight = torch.ones(4, 6, dtype=torch.int8)
    save_file({"a.weight": weight, "a.weight_scale": torch.ones(5, 1)}, tmp_path / "x.safetensors")
    assert records(tmp_path)["a.weight"].dtype == "int8"
    save_file({"a.weight": weight, "a.bias": torch.ones(4)}, tmp_path / "x.safetensors")
    assert records(tmp_path)["a.weight"].dtype == "int8"


def test_a_scale_that_is_gone_since_it_was_listed_is_an_error_of_its_weight(tmp_path: Path) -> None:
    weight, scale = torch.ones(4, 6, dtype=torch.int8), torch.ones(4, 1)
    save_file({"a.weight": weight}, tmp_path / "x.safetensors")
    save_file({"a.weight_scale": scale}, tmp_path / "y.safetensors")
    location = records(tmp_path)["a.weight"].location
    assert location is not None
    assert load_tensor(location).shape == (4, 6)
    (tmp_path / "y.safetensors").unlink()
    with refuses(TensorUnreadableError, "dumps.file.missing"):
        load_tensor(location)


@pytest.mark.parametrize(
    ("scale", "weight", "is_fit"),
    [
        ((), (4, 6), True),
        ((1,), (4, 6), True),
        ((4,), (4, 6), True),
        ((6,), (4, 6), False),
        ((4, 1), (4, 6), True),
        ((1, 6), (4, 6), True),
        ((4, 3), (4, 6), True),
        ((2, 2), (4, 6), True),
        ((4, 4), (4, 6), False),
        ((4, 0), (4, 6), False),
        ((4, 1, 1), (4, 6), False),
        ((2, 2), (3, 5), True),
        ((2, 2), (3, 7), True),
        ((2, 3), (192, 300), True),
    ],
)
def test_which_scales_fit_is_what_can_be_laid_along(
    scale: tuple[int, ...], weight: tuple[int, ...], is_fit: bool
) -> None:
    assert fits(scale, weight) is is_fit
    values: npt.NDArray[Any] = np.ones(weight, np.int8)
    if is_fit:
        assert dequantise(values, np.ones(scale, np.float32), None).shape == weight
    else:
        with pytest.raises(DamagedError, match="does_not_fit"):
            dequantise(values, np.ones(scale, np.float32), None)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_damage_to_a_checkpoint_is_a_value_or_a_named_error(tmp_path: Path, data: st.DataObject) -> None:
    folder = write_shards(tmp_path / "c", quantise_all((24, 1), offset=True))
    file = data.draw(st.sampled_from(sorted(folder.iterdir())))
    content = bytearray(file.read_bytes())
    start = data.draw(st.integers(0, min(len(content) - 1, 3000)))
    length = data.draw(st.integers(0, 40))
    content[start : start + length] = data.draw(st.binary(max_size=40))
    file.write_bytes(content)
    try:
        found = [record for node in read(folder).nodes for record in node.tensors]
    except FirstdriftError:
        return
    assert found
    for record in found:
        if record.location is not None and record.problem is None:
            with suppress(TensorUnreadableError):
                load_tensor(record.location)
