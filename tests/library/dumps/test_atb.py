"""What the ATB readers find in dumps in the layouts of msit and of msprobe."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from library.dumps.atb_samples import (
    DECODE,
    MODELS,
    MSPROBE_DATA,
    PREFILL,
    TENSORS,
    description,
    model,
    numbers,
    write,
    write_dump,
    write_models,
    write_run,
)
from messages import ids_of, outline, passed_over, refuses

from firstdrift.dumps.atb.reader import AtbReader, MsitAtbReader, MsprobeAtbReader
from firstdrift.dumps.detect import open_dump
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import DumpNotRecognisedError, DumpUnreadableError
from firstdrift.model.node import Node, NodeKind
from firstdrift.model.slice import RECORDED_ORDER, Coordinates, Dump, Slice
from firstdrift.model.tensor import Role, Statistics, TensorRecord
from firstdrift.parallel.slices import read_slice
from firstdrift.wording.message import Message

Unpacked = Callable[[str], Path]
MSIT, MSPROBE = MsitAtbReader(), MsprobeAtbReader()
READERS: list[AtbReader] = [MSIT, MSPROBE]

WARM = "parts warm_up 1 0 both 1"
COLD = "parts no_warm_up both {}"

# archive: tokens, ranks, nodes of prefill and decode, tensors of prefill and decode (as counted in the
# files), how tokens were told
CONTENTS = {
    "atb12_bad_logits": (6, [None], (322, 321), (1, 1), COLD.format(1)),
    "atb12_bf16": (6, [None], (322, 321), (395, 394), WARM),
    "atb12_bf16_3tok": (3, [None], (322, 321), (395, 394), WARM),
    "atb12_bf16_bad": (4, [None], (322, 321), (395, 394), WARM),
    "atb12_bf16_logits": (6, [None], (322, 321), (1, 1), COLD.format(1)),
    "atb12_bf16_nowarm": (4, [None], (322, 321), (395, 394), COLD.format(0)),
    "atb12_bf16_stats": (3, [None], (322, 321), (395, 394), WARM),
    "atb12_bf16_tp2": (3, [0, 1], (322, 321), (395, 394), WARM),
    "atb12_fp32_golden": (3, [None], (322, 321), (395, 394), WARM),
    "atb12_fp32_perturb_io": (3, [None], (322, 321), (946, 943), WARM),
    "atb4_bf16": (4, [None], (114, 113), (139, 138), WARM),
    "corrupt": (3, [None], (322, 321), (395, 394), WARM),
    "msprobe_atb_bf16": (3, [None], (322, 321), (395, 394), WARM),
    "msprobe_atb_bf16_alias": (3, [None], (322, 321), (395, 394), WARM),
    "msprobe_atb_golden": (3, [None], (322, 321), (395, 394), WARM),
}


def read_all(path: Path) -> tuple[Dump, list[Slice]]:
    dump = open_dump(path)
    return dump, [read_slice(dump, listing) for listing in dump.slices]


def read_token(path: Path, token: int) -> Slice:
    dump = open_dump(path)
    (listing,) = [listing for listing in dump.slices if listing.coordinates.token == token]
    return read_slice(dump, listing)


def by_name(read: Slice) -> dict[str, Node]:
    return {node.name: node for node in read.nodes}


def tensors_of(read: Slice) -> list[TensorRecord]:
    return [record for node in read.nodes for record in node.tensors if record.is_tensor]


def output_of(read: Slice, name: str) -> TensorRecord:
    (tensor,) = [tensor for tensor in by_name(read)[name].tensors if tensor.label == "output.0"]
    return tensor


def value_of(record: TensorRecord) -> float:
    assert record.problem is None
    assert record.location is not None
    return float(load_tensor(record.location)[0])


def process_folder(path: Path) -> Path:
    (process,) = [*path.glob("**/tensors/0_*"), *path.glob("**/atb_dump_data/data/0_*")]
    return process


@pytest.mark.parametrize("name", CONTENTS)
def test_every_token_node_and_tensor_is_found(unpacked: Unpacked, name: str) -> None:
    tokens, ranks, nodes, tensors, told = CONTENTS[name]
    dump, slices = read_all(unpacked(f"msit/{name}"))
    assert dump.format == ("msprobe-atb" if name.startswith("msprobe") else "msit-atb")
    assert [listing.coordinates for listing in dump.slices] == [
        Coordinates(rank=rank, token=token) for token in range(tokens) for rank in ranks
    ]
    for read in slices:
        is_decode = bool(read.coordinates.token)
        assert len(read.nodes) == nodes[is_decode]
        assert len(tensors_of(read)) == tensors[is_decode]
    assert outline(dump.attributes["tokens"]) == told
    assert outline(dump.attributes["models"]) == "models DecoderModel_Prefill DecoderModel_Decoder"
    assert not dump.problems
    assert not any(read.problems for read in slices)
    problems = [record.problem for read in slices for record in tensors_of(read) if record.problem]
    short = Message.of("dumps.file.values_cut_short", needed=64, available=20)
    cut = Message.of("dumps.file.problem", file="outtensor0.bin", problem=short)
    assert problems == ([cut] if name == "corrupt" else [])


@pytest.mark.parametrize("name", ["atb12_bf16_nowarm", "atb12_bf16_tp2", "atb4_bf16", "msprobe_atb_golden"])
def test_nodes_are_numbered_in_order_and_children_come_before_their_parents(
    unpacked: Unpacked, name: str
) -> None:
    for read in read_all(unpacked(f"msit/{name}"))[1]:
        assert [node.order for node in read.nodes] == list(range(len(read.nodes)))
        nodes = by_name(read)
        assert len(nodes) == len(read.nodes)
        assert len({node.path for node in read.nodes}) == len(read.nodes)
        assert all(node.parent is None or nodes[node.parent].order > node.order for node in read.nodes)
        assert read.order_origin == RECORDED_ORDER


@pytest.mark.parametrize("name", ["atb12_fp32_perturb_io", "msprobe_atb_bf16_alias"])
def test_all_headers_agree_with_the_data(unpacked: Unpacked, name: str) -> None:
    for record in tensors_of(read_token(unpacked(f"msit/{name}"), 1)):
        assert record.location is not None
        values = load_tensor(record.location)
        assert (values.dtype.name, values.shape) == (record.dtype, record.shape)


def copied(path: Path, to: Path, *without: str) -> Path:
    """Copy a dump without some of its folders."""
    return Path(shutil.copytree(path, to / "copy", ignore=shutil.ignore_patterns(*without)))


@pytest.mark.parametrize("name", ["msprobe_atb_golden", "atb12_bf16_nowarm"])
def test_the_tree_is_the_same_without_a_topology(unpacked: Unpacked, tmp_path: Path, name: str) -> None:
    expected = [read.nodes for read in read_all(unpacked(f"msit/{name}"))[1]]
    dump, slices = read_all(copied(unpacked(f"msit/{name}"), tmp_path, "model", "layer"))
    assert [[(n.name, n.path, n.kind, n.order) for n in read.nodes] for read in slices] == [
        [(n.name, n.path, n.kind, n.order) for n in nodes] for nodes in expected
    ]
    assert [problem.reason for problem in dump.problems] == [
        Message.of("dumps.atb.tree_from_folders"),
        Message.of("dumps.atb.decode_assumed", operation=16),
    ]


class TestNames:
    def test_nodes_are_named_by_folder_and_their_paths_count_what_is_there_more_than_once(
        self, unpacked: Unpacked
    ) -> None:
        nodes = by_name(read_token(unpacked("msit/atb12_bf16"), 1))
        layer = nodes["20_Decoder_layer"]
        assert (layer.path, layer.kind, layer.type_name) == (
            "Decoder_layer.2",
            NodeKind.MODULE,
            "Decoder_layer",
        )
        linear = nodes["20_Decoder_layer/0_Attention/4_LinearNoQuant/0_LinearOperation"]
        assert linear.path == "Decoder_layer.2.Attention.LinearNoQuant.LinearOperation"
        assert (linear.kind, linear.type_name) == (NodeKind.API, "LinearOperation")
        assert linear.parent == "20_Decoder_layer/0_Attention/4_LinearNoQuant"
        assert nodes["20_Decoder_layer/3_ElewiseOperation"].path == "Decoder_layer.2.ElewiseOperation_1"
        assert nodes["31_LmHead"].path == "LmHead"

    def test_operations_stand_in_the_order_in_which_they_ran(self, unpacked: Unpacked) -> None:
        names = [node.name for node in read_token(unpacked("msit/atb4_bf16"), 0).nodes]
        top = [name for name in names if "/" not in name]
        assert top[:3] == ["0_WordEmbedding", "1_PositionalEmbeddingGather", "2_Prefill_layer"]
        assert top[-2:] == ["6_RmsNormOperation", "7_LmHead"]
        assert names[0] == "0_WordEmbedding/0_GatherOperation"

    def test_what_an_operation_was_told_are_its_arguments(self, unpacked: Unpacked) -> None:
        nodes = by_name(read_token(unpacked("msit/atb12_bf16"), 1))
        name = "20_Decoder_layer/0_Attention/0_QKVLinearSplitPack/0_NormLinear/0_RmsNormOperation"
        told = {record.key: record.scalar for record in nodes[name].tensors if not record.is_tensor}
        assert told == {"layerType": "1", "normParam.epsilon": "1e-06", "normParam.quantType": "0"}

    def test_inputs_come_before_outputs(self, unpacked: Unpacked) -> None:
        nodes = by_name(read_token(unpacked("msit/atb12_fp32_perturb_io"), 2))
        rope = nodes["20_Decoder_layer/0_Attention/1_RotaryPositionEmbedding"]
        assert [record.label for record in rope.tensors] == [
            *(f"input.{number}" for number in range(5)),
            *("output.0", "output.1"),
        ]


class TestTokens:
    def test_a_token_has_the_operations_of_its_own_model_alone(self, unpacked: Unpacked) -> None:
        path = unpacked("msit/atb12_bf16_nowarm")
        top = [{int(n.name.partition("_")[0]) for n in read_token(path, t).nodes} for t in range(4)]
        assert top == [set(range(16)), *[set(range(16, 32))] * 3]

    def test_runs_with_and_without_a_warm_up_agree_token_by_token(self, unpacked: Unpacked) -> None:
        warm, cold = (unpacked(f"msit/{name}") for name in ("atb12_bf16", "atb12_bf16_nowarm"))
        for token in range(4):
            head = "31_LmHead" if token else "15_LmHead"
            records = [output_of(read_token(path, token), head) for path in (warm, cold)]
            first, second = (load_tensor(record.location) for record in records if record.location)
            assert np.array_equal(first, second)

    def test_one_model_has_a_token_in_each_folder(self, tmp_path: Path) -> None:
        write_models(tmp_path / MODELS, model("Model", *PREFILL))
        for number in (0, 1, 4):
            write_run(tmp_path / TENSORS / str(number), PREFILL)
        dump = open_dump(tmp_path)
        assert [listing.coordinates.token for listing in dump.slices] == [0, 1, 4]
        assert not dump.problems

    def test_a_lost_topology_of_the_decode_is_made_up_for_by_the_folders(self, tmp_path: Path) -> None:
        path = write_dump(tmp_path, {0: PREFILL, 1: PREFILL + DECODE, 2: DECODE})
        (tmp_path / MODELS / "Decode.json").unlink()
        dump, slices = read_all(path)
        assert [listing.coordinates.token for listing in dump.slices] == [0, 1, 2]
        assert [node.name for node in slices[2].nodes] == list(DECODE)
        (problem,) = dump.problems
        assert problem.reason == Message.of("dumps.atb.decode_assumed", operation=3)

    def test_decodes_alone_keep_the_numbers_of_their_folders_and_that_is_said(self, tmp_path: Path) -> None:
        dump, slices = read_all(write_dump(tmp_path, {3: DECODE, 4: DECODE}))
        assert [listing.coordinates.token for listing in dump.slices] == [3, 4]
        assert [node.name for node in slices[0].nodes] == list(DECODE)
        (problem,) = dump.problems
        assert problem.reason.id == "dumps.atb.no_prefill"

    def test_more_than_two_models_are_not_guessed_at(self, tmp_path: Path) -> None:
        write_dump(tmp_path, {0: PREFILL, 1: DECODE})
        write_models(tmp_path / MODELS, model("Draft", "6_Embedding"))
        dump, slices = read_all(tmp_path)
        assert [listing.coordinates.token for listing in dump.slices] == [0, 1]
        assert [node.name for node in slices[1].nodes] == list(DECODE)
        assert dump.problems[0].reason == Message.of("dumps.atb.not_two_models", models=3)

    def test_a_transdata_operation_before_the_models_shifts_their_numbers(self, tmp_path: Path) -> None:
        write_models(tmp_path / MODELS, model("Prefill", "0_A", "1_B"), model("Decode", "2_A", "3_B"))
        write(tmp_path / "msit_dump_1/layer/42/TransdataOperation_0.json", "{}")
        write_run(tmp_path / TENSORS / "0", ("1_A", "2_B", "3_A", "4_B"))
        dump, slices = read_all(tmp_path)
        assert [[node.name for node in read.nodes] for read in slices] == [["1_A", "2_B"], ["3_A", "4_B"]]
        assert not any(read.problems for read in slices)
        assert not dump.problems

    def test_topologies_of_layers_stand_in_for_that_of_the_model(self, tmp_path: Path) -> None:
        inner = {"opName": "LinearOperation_4_0", "opType": "LinearOperation", "param": {"hasBias": True}}
        layer = {"opName": "Decoder_layer_4", "opType": "Decoder_layer", "param": "", "nodes": [inner]}
        write(tmp_path / "msit_dump_1/layer/42/Decoder_layer_4.json", json.dumps(layer))
        write_run(tmp_path / TENSORS / "0", PREFILL + DECODE)
        write_run(tmp_path / TENSORS / "1", DECODE)
        nodes = by_name(read_token(tmp_path, 1))
        assert nodes["4_Decoder_layer"].kind is NodeKind.MODULE
        assert nodes["4_Decoder_layer/0_LinearOperation"].kind is NodeKind.API


class TestTensorFiles:
    def test_statistics_stand_for_tensors(self, unpacked: Unpacked) -> None:
        record = output_of(read_token(unpacked("msit/atb12_bf16_stats"), 1), "20_Decoder_layer")
        assert (record.dtype, record.shape, record.location) == ("bfloat16", (1, 32), None)
        assert record.statistics == Statistics(3.59375, -6.125, -1.307861328125, 17.035537376067897)

    def test_the_table_of_statistics_belongs_to_the_tensors(self, unpacked: Unpacked) -> None:
        record = output_of(read_token(unpacked("msit/msprobe_atb_golden"), 0), "0_WordEmbedding")
        assert record.location is not None
        assert record.statistics == Statistics(0.554654, -0.528134, 0.033283, 2.781237)

    def test_a_table_alone_makes_nodes_and_tensors(self, unpacked: Unpacked, tmp_path: Path) -> None:
        path = unpacked("msit/msprobe_atb_golden")
        expected = [[node.name for node in read.nodes] for read in read_all(path)[1]]
        slices = read_all(copied(path, tmp_path, "info", "*_[A-Z]*"))[1]
        assert [[node.name for node in read.nodes if node.tensors] for read in slices] == [
            [node.name for node in read.nodes] for read in slices
        ]
        assert {node.name for node in slices[1].nodes} <= set(expected[1])
        records = tensors_of(slices[1])
        assert len(records) == 394
        assert all(record.statistics and not record.location and not record.problem for record in records)
        assert output_of(slices[1], "20_Decoder_layer").dtype == "float32"

    def test_aliases_lead_to_the_values_of_the_same_run(self, unpacked: Unpacked) -> None:
        plain, aliased = (unpacked(f"msit/{name}") for name in ("msprobe_atb_bf16", "msprobe_atb_bf16_alias"))
        for token in range(3):
            first, second = (tensors_of(read_token(path, token)) for path in (plain, aliased))
            for one, other in zip(first, second, strict=True):
                assert one.location is not None
                assert other.location is not None
                assert np.array_equal(load_tensor(one.location), load_tensor(other.location))

    def test_an_alias_of_an_alias_is_followed_and_a_circle_is_a_problem(self, tmp_path: Path) -> None:
        run = write_dump(tmp_path, {0: PREFILL + DECODE}) / TENSORS / "0"
        names = {"0_Embedding": "1", "1_Prefill_layer": "2", "4_Decoder_layer": "5", "5_LmHead": "4"}
        for name, other in names.items():
            alias = description("1", dtype="0", data=f"{other}_outtensor0.bin")
            write(run / name / "after/outtensor0.bin", alias)
        assert value_of(output_of(read_token(tmp_path, 0), "0_Embedding")) == 2
        assert output_of(read_token(tmp_path, 1), "4_Decoder_layer").problem == Message.of(
            "dumps.file.problem",
            file="outtensor0.bin",
            problem=Message.of("dumps.atb.values_not_in_run", file="'5_outtensor0.bin'"),
        )

    @pytest.mark.parametrize(
        "alias", ["../1/5_outtensor0.bin", "/etc/passwd", "9_outtensor0.bin", "2_intensor0.bin", "x" * 500]
    )
    def test_an_alias_that_leads_nowhere_in_its_run_is_a_problem(self, tmp_path: Path, alias: str) -> None:
        path = write_dump(tmp_path, {0: PREFILL + DECODE, 1: DECODE})
        write(path / TENSORS / "0/0_Embedding/after/outtensor0.bin", description("1", dtype="0", data=alias))
        problem = output_of(read_token(path, 0), "0_Embedding").problem
        assert problem is not None
        assert "dumps.atb.values_not_in_run" in ids_of(problem)

    def test_an_alias_of_another_shape_is_a_problem(self, tmp_path: Path) -> None:
        path = write_dump(tmp_path, {0: PREFILL + DECODE})
        alias = description("2", dtype="0", data="2_outtensor0.bin")
        write(path / TENSORS / "0/0_Embedding/after/outtensor0.bin", alias)
        assert output_of(read_token(path, 0), "0_Embedding").problem

    def test_a_description_alone_is_a_tensor_without_values(self, tmp_path: Path) -> None:
        path = write_dump(tmp_path, {0: PREFILL + DECODE})
        write(path / TENSORS / "0/2_LmHead/after/outtensor0.bin", description("1,128"))
        record = output_of(read_token(path, 0), "2_LmHead")
        assert (record.dtype, record.shape) == ("bfloat16", (1, 128))
        assert "dumps.atb_bin.description_only" in ids_of(record.problem)

    def test_inputs_saved_after_the_operation_are_told_from_those_before(self, tmp_path: Path) -> None:
        path = write_dump(tmp_path, {0: PREFILL + DECODE})
        folder = path / TENSORS / "0/2_LmHead"
        write(folder / "before/intensor0.bin", numbers(1))
        write(folder / "after/intensor0.bin", numbers(2))
        write(folder / "before/intensor10_weight.bin", numbers(3))
        write(folder / "before/tiling.bin", "anything")
        read = read_token(path, 0)
        tensors = by_name(read)["2_LmHead"].tensors
        assert [t.label for t in tensors] == ["input.0", "input.0.after", "input.10", "output.0"]
        assert [value_of(tensor) for tensor in tensors] == [1, 2, 3, 2]
        assert not read.problems

    def test_two_files_of_one_number_are_both_kept(self, tmp_path: Path) -> None:
        path = write_dump(tmp_path, {0: PREFILL + DECODE})
        write(path / TENSORS / "0/2_LmHead/after/outtensor0_x.bin", numbers(7))
        read = read_token(path, 0)
        assert [t.label for t in by_name(read)["2_LmHead"].tensors] == ["output.0", "output.0#1"]
        assert [problem.reason for problem in read.problems] == [Message.of("dumps.atb.number_twice")]

    def test_a_tensor_that_was_dumped_twice_is_mentioned(self, tmp_path: Path) -> None:
        path = write_dump(tmp_path, {0: PREFILL + DECODE})
        write(path / TENSORS / "0/2_LmHead/after/outtensor0.bin", numbers(7) + numbers(8))
        read = read_token(path, 0)
        assert value_of(output_of(read, "2_LmHead")) == 8
        (problem,) = read.problems
        assert problem.file == "0_42/0/2_LmHead/after/outtensor0.bin"
        assert problem.reason.id == "dumps.atb_bin.last_of_several"


class TestWhereADumpIsNamed:
    @pytest.mark.parametrize("name", ["atb12_bf16_3tok", "msprobe_atb_bf16"])
    @pytest.mark.parametrize("up", range(4))
    def test_any_folder_from_the_process_up_is_the_dump(self, unpacked: Unpacked, name: str, up: int) -> None:
        path = process_folder(unpacked(f"msit/{name}"))
        for _ in range(up):
            path = path.parent
        dump = open_dump(path)
        assert len(dump.slices) == 3
        assert dump.evidence == (
            Message.of("dumps.atb.operation_folders", folders="0_4242"),
            Message.of("dumps.atb.run_folders", count=3),
            Message.of("dumps.atb.topologies", count=2),
        )

    def test_a_numbered_folder_is_a_dump_of_its_tokens(self, unpacked: Unpacked) -> None:
        process = process_folder(unpacked("msit/atb12_bf16"))
        tokens = {n: [s.coordinates.token for s in open_dump(process / n).slices] for n in "012"}
        assert tokens == {"0": [0], "1": [0, 1], "2": [2]}

    def test_a_warm_up_can_be_looked_at_by_naming_it(self, unpacked: Unpacked) -> None:
        read = read_token(process_folder(unpacked("msit/atb12_bf16")) / "0", 0)
        assert len(tensors_of(read)) == 17

    def test_a_path_with_links_or_dots_is_followed(self, unpacked: Unpacked, tmp_path: Path) -> None:
        process = process_folder(unpacked("msit/atb4_bf16"))
        (tmp_path / "link").symlink_to(process)
        assert len(open_dump(tmp_path / "link").slices) == 4
        assert len(open_dump(process / "..").slices) == 4

    def test_a_folder_of_two_dumps_lists_them(self, tmp_path: Path) -> None:
        for name in "first", "second":
            write_dump(tmp_path / name, {0: PREFILL + DECODE})
        assert not any(reader.recognise(tmp_path) for reader in READERS)
        with refuses(DumpNotRecognisedError, "dumps.several", dumps=("first", "second")):
            open_dump(tmp_path)

    def test_processes_are_ranks(self, tmp_path: Path) -> None:
        for process in "0_42", "3_43":
            write_run(tmp_path / "atb_dump_data/data" / process / "0", PREFILL)
        assert [s.coordinates.rank for s in open_dump(tmp_path).slices] == [0, 3]
        (tmp_path / "atb_dump_data/data/3_43").rename(tmp_path / "atb_dump_data/data/0_43")
        assert [s.coordinates.rank for s in open_dump(tmp_path).slices] == [0, 1]

    def test_what_no_tool_wrote_is_no_dump(self, tmp_path: Path) -> None:
        write(tmp_path / "tensors/2024_11/0/readme.txt", "x")
        write(tmp_path / "other/0_42/0/0_Op/after/outtensor0.bin", numbers(1))
        for reader in READERS:
            assert reader.recognise(tmp_path) == ()
            with pytest.raises(DumpNotRecognisedError):
                reader.open_dump(tmp_path)


class TestDamage:
    @pytest.mark.parametrize(
        "content",
        [
            *("", "[]", "3", "[" * 100_000, '{"modelName": "x"', '{"modelName": "x", "nodes": []}'),
            '{"modelName": 3, "nodes": [{}]}',
            '{"modelName": "x", "nodes": [{"opName": "A_0", "opType": 3}]}',
            '{"modelName": "x", "nodes": [{"opName": "A_0", "opType": "../../A"}]}',
            '{"modelName": "x", "nodes": [{"opName": "A_0", "opType": "A", "nodes": {"a": 1}}]}',
        ],
    )
    def test_a_damaged_topology_is_replaced_by_the_folders(self, tmp_path: Path, content: str) -> None:
        path = write_dump(tmp_path, {0: PREFILL, 1: PREFILL + DECODE, 2: DECODE})
        write(tmp_path / MODELS / "Decode.json", content)
        dump, slices = read_all(path)
        assert [node.name for node in slices[2].nodes] == list(DECODE)
        assert dump.problems[0].file == "model/42/Decode.json"
        assert not any(read.problems for read in slices)

    def test_a_topology_nested_beyond_reason_is_refused(self, tmp_path: Path) -> None:
        path = write_dump(tmp_path, {0: PREFILL, 1: DECODE})
        node: dict[str, object] = {"opName": "A_3", "opType": "A" * 200}
        for _ in range(200):
            node = {"opName": "A_3", "opType": "A" * 200, "nodes": [node]}
        write_models(tmp_path / MODELS, {"modelName": "Decode", "nodes": [node]})
        assert open_dump(path).problems[0].reason.id == "dumps.atb.no_model_topology"

    def test_models_of_the_same_numbers_tell_nothing(self, tmp_path: Path) -> None:
        write_models(tmp_path / MODELS, model("A", "0_X"), model("B", "0_Y"))
        write_run(tmp_path / TENSORS / "0", ("0_X",))
        dump, slices = read_all(tmp_path)
        assert dump.problems[0].reason == Message.of("dumps.atb.same_numbers", models=("A", "B"))
        assert [node.name for node in slices[0].nodes] == ["0_X"]

    def test_operations_that_the_topology_lacks_are_nodes_and_a_problem(self, tmp_path: Path) -> None:
        path = write_dump(tmp_path, {0: (*PREFILL, *DECODE, "4_Other/0_LinearOperation")})
        read = read_token(path, 1)
        assert by_name(read)["4_Other"].kind is NodeKind.MODULE
        assert by_name(read)["4_Other/0_LinearOperation"].kind is NodeKind.API
        (problem,) = read.problems
        assert problem.reason.id == "dumps.atb.not_in_topology"
        assert problem.reason.arguments["operations"] == ("4_Other", "4_Other/0_LinearOperation")

    def test_what_is_not_part_of_a_dump_is_named(self, tmp_path: Path) -> None:
        path = write_dump(tmp_path, {0: PREFILL + DECODE})
        process = path / TENSORS
        write(process / "notes.txt", "x")
        (process / "1").mkdir()
        write(process / "0/readme", "x")
        write(process / "0/0_Embedding/after/outtensor0.npy", "x")
        write(process / "0/0_Embedding/sub/x", "x")
        dump, slices = read_all(path)
        assert [problem.reason for problem in dump.problems] == [
            Message.of("dumps.atb.empty_folders", folders=("1",)),
            passed_over("notes.txt"),
        ]
        assert slices[0].problems[0].reason == passed_over(
            "0_Embedding/after/outtensor0.npy", "0_Embedding/sub", "readme"
        )

    def test_a_table_with_damaged_rows_keeps_the_others(self, unpacked: Unpacked, tmp_path: Path) -> None:
        path = copied(unpacked("msit/msprobe_atb_golden"), tmp_path, "0", "*_Prefill_layer")
        table = process_folder(path) / "2/statistic.csv"
        lines = table.read_text().splitlines()
        lines[1] = lines[1].replace(",0.", ",x.")
        table.write_text("\n".join([*lines, lines[5]])[:-30])
        read = read_token(path, 2)
        assert [problem.reason for problem in read.problems] == [
            Message.of("dumps.table.bad_rows", bad=2, rows=395)
        ]
        assert sum(record.statistics is not None for record in tensors_of(read)) == 393

    def test_damaged_arguments_are_taken_from_the_topology(self, unpacked: Unpacked, tmp_path: Path) -> None:
        path = copied(unpacked("msit/atb4_bf16"), tmp_path, "0", "*_Prefill_layer")
        name = "10_Decoder_layer/3_ElewiseOperation"
        write(process_folder(path) / "2" / name / "op_param.json", "{")
        read = read_token(path, 2)
        told = [record for record in by_name(read)[name].tensors if not record.is_tensor]
        assert [(record.role, record.key, record.scalar) for record in told] == [
            (Role.INPUT, "elewiseType", "8")
        ]
        (problem,) = read.problems
        assert problem.file.endswith(f"{name}/op_param.json")

    @pytest.mark.parametrize("gone", ["0_42/1", "0_42/1/4_Decoder_layer"])
    def test_a_token_that_vanished_is_unreadable_and_the_rest_is_not(self, tmp_path: Path, gone: str) -> None:
        path = write_dump(tmp_path, {0: (*PREFILL, "3_Embedding"), 1: ("4_Decoder_layer",)})
        dump = open_dump(path)
        shutil.rmtree((path / TENSORS).parent / gone)
        with pytest.raises(DumpUnreadableError):
            read_slice(dump, dump.slices[2])
        assert read_slice(dump, dump.slices[0]).nodes


def test_msprobe_keeps_its_topologies_by_process(tmp_path: Path) -> None:
    write_models(tmp_path / "atb_dump_data/info/model/0_42", model("P", *PREFILL), model("D", *DECODE))
    write_run(tmp_path / MSPROBE_DATA / "0", PREFILL + DECODE)
    assert outline(open_dump(tmp_path).attributes["models"]) == "models P D"
