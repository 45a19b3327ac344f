"""What the msit reader finds in torch dumps that the real msit wrote."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from messages import ids_of, passed_over, problem_of

from firstdrift.dumps.msit.reader import MsitTorchReader
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import DumpNotRecognisedError, DumpUnreadableError
from firstdrift.model.node import Node, NodeKind
from firstdrift.model.slice import Coordinates, Dump, Slice
from firstdrift.model.tensor import Role, Statistics, TensorRecord
from firstdrift.wording.message import Message

Unpacked = Callable[[str], Path]
READER = MsitTorchReader()

# archive: tokens, nodes per token, tensors in all tokens together, as counted in the files
CONTENTS = {
    "llama12_bf16": (6, 163, 1926),
    "llama12_bf16_bad_L7_T2": (6, 163, 1926),
    "llama12_golden_fp32": (6, 163, 1926),
    "llama12_logits_bad": (6, 163, 6),
    "llama12_logits_bf16": (6, 163, 6),
    "llama12_logits_golden": (6, 163, 6),
    "llama12_perturb_L7_T2": (6, 163, 1926),
    "llama12_stats_golden": (3, 163, 963),
    "llama4_api": (2, 80, 318),
    "llama4_apionly": (2, 80, 92),
    "llama4_bf16": (8, 59, 904),
    "llama4_filter": (2, 59, 40),
    "llama4_fp16": (8, 59, 904),
    "llama4_golden_fp32": (8, 59, 904),
    "llama4_logits_bf16": (8, 59, 8),
    "llama4_logits_golden": (8, 59, 8),
    "llama4_logits_perturb": (8, 59, 8),
    "llama4_perturb_L2_T3": (8, 59, 904),
    "llama4_sdpa": (8, 59, 872),
    "llama4_stats1_bf16": (3, 59, 339),
    "llama4_stats1_golden": (3, 59, 339),
    "llama4_stats2_bf16": (2, 59, 226),
    "llama4_stats2_golden": (2, 59, 226),
    "llama4_twoprompts": (4, 59, 244),
    "llama4_weights": (1, 59, 23),
    "nested": (2, 7, 30),
}


def read_all(path: Path) -> tuple[Dump, list[Slice]]:
    dump = READER.open_dump(path)
    return dump, [READER.read_slice(dump, listing) for listing in dump.slices]


def read_first(path: Path) -> Slice:
    return read_all(path)[1][0]


def by_name(read: Slice) -> dict[str, Node]:
    return {node.name: node for node in read.nodes}


def tensor_of(read: Slice, name: str, label: str) -> TensorRecord:
    (tensor,) = [tensor for tensor in by_name(read)[name].tensors if tensor.label == label]
    return tensor


def device_folder(path: Path) -> Path:
    (tree,) = path.glob("**/model_tree.json")
    return tree.parent


@pytest.fixture
def dump_copy(unpacked: Unpacked, tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies a dump, so that it can be damaged."""
    return lambda name: Path(shutil.copytree(unpacked(f"msit/{name}"), tmp_path / "copy" / name))


@pytest.mark.parametrize("name", CONTENTS)
def test_every_token_node_and_tensor_is_found_and_nothing_is_a_problem(unpacked: Unpacked, name: str) -> None:
    tokens, nodes, tensors = CONTENTS[name]
    dump, slices = read_all(unpacked(f"msit/{name}"))
    assert [listing.coordinates for listing in dump.slices] == [Coordinates(token=n) for n in range(tokens)]
    assert {len(read.nodes) for read in slices} == {nodes}
    records = [tensor for read in slices for node in read.nodes for tensor in node.tensors]
    assert len(records) == tensors
    assert not any(record.problem for record in records)
    assert not dump.problems
    assert not any(read.problems for read in slices)


@pytest.mark.parametrize("name", CONTENTS)
def test_nodes_are_numbered_in_order_and_children_come_before_their_parents(
    unpacked: Unpacked, name: str
) -> None:
    for read in read_all(unpacked(f"msit/{name}"))[1]:
        assert [node.order for node in read.nodes] == list(range(len(read.nodes)))
        nodes = by_name(read)
        assert len(nodes) == len(read.nodes)
        assert all(node.parent is None or nodes[node.parent].order > node.order for node in read.nodes)
        assert [node.name for node in read.nodes if node.parent is None] == ["root"]


def test_all_headers_agree_with_the_data(unpacked: Unpacked) -> None:
    for read in read_all(unpacked("msit/llama4_golden_fp32"))[1]:
        for node in read.nodes:
            for record in node.tensors:
                assert record.location is not None
                values = load_tensor(record.location)
                assert (values.dtype.name, values.shape) == (record.dtype, record.shape)


class TestNames:
    def test_paths_are_without_root_and_the_root_has_its_class(self, unpacked: Unpacked) -> None:
        nodes = by_name(read_first(unpacked("msit/llama4_golden_fp32")))
        root, layer = nodes["root"], nodes["root.model.layers.0"]
        assert (root.path, root.kind, root.type_name) == (
            "LlamaForCausalLM",
            NodeKind.MODEL,
            "LlamaForCausalLM",
        )
        assert (layer.path, layer.kind, layer.type_name) == (
            "model.layers.0",
            NodeKind.MODULE,
            "LlamaDecoderLayer",
        )
        assert layer.parent == "root.model.layers"

    def test_containers_that_never_run_are_nodes_without_tensors(self, unpacked: Unpacked) -> None:
        assert by_name(read_first(unpacked("msit/llama4_golden_fp32")))["root.model.layers"].tensors == ()

    def test_an_operator_call_is_an_api_inside_its_module(self, unpacked: Unpacked) -> None:
        matmul = by_name(read_first(unpacked("msit/llama4_api")))["root.model.layers.0.self_attn.matmul"]
        assert matmul.kind is NodeKind.API
        assert matmul.type_name == "matmul"
        assert matmul.parent == "root.model.layers.0.self_attn"
        assert [tensor.label for tensor in matmul.tensors] == ["input.0", "input.1", "output.0"]

    def test_nested_outputs_keep_their_positions(self, unpacked: Unpacked) -> None:
        read = read_first(unpacked("msit/nested"))
        labels = [tensor.label for tensor in by_name(read)["root.t"].tensors]
        assert labels == ["input.0", "output.0", "output.1.0", "output.1.1.0", "output.1.1.2.0"]
        assert [tensor.label for tensor in by_name(read)["root.one"].tensors] == ["input.0", "output.0"]

    def test_saved_weights_are_parameters_of_their_modules_in_every_token(self, unpacked: Unpacked) -> None:
        for read in read_all(unpacked("msit/llama4_weights"))[1]:
            weight = tensor_of(read, "root.model.layers.0.mlp.down_proj", "parameter.weight")
            assert (weight.dtype, weight.shape) == ("float32", (64, 128))
            assert sum(t.role is Role.PARAMETER for node in read.nodes for t in node.tensors) == 9


class TestStatistics:
    def test_a_dump_of_statistics_alone_has_records_without_data(self, unpacked: Unpacked) -> None:
        attention = tensor_of(
            read_first(unpacked("msit/llama4_stats1_golden")), "root.model.layers.0.self_attn", "output.1"
        )
        assert (attention.dtype, attention.shape, attention.location) == ("float32", (1, 4, 6, 6), None)
        assert attention.statistics == Statistics(1.0, 0.0, 0.1666666716337204, 4.15505313873291)

    def test_data_and_statistics_of_one_tensor_are_one_record(self, unpacked: Unpacked) -> None:
        read = read_first(unpacked("msit/llama4_stats2_golden"))
        for node in read.nodes:
            for record in node.tensors:
                assert record.location is not None
                assert record.statistics is not None
                values = load_tensor(record.location).astype("f8")
                assert record.statistics.maximum == pytest.approx(values.max(), rel=1e-6)
                assert record.statistics.mean == pytest.approx(values.mean(), rel=1e-4, abs=1e-6)

    def test_rows_that_share_an_index_find_their_files(self, unpacked: Unpacked) -> None:
        tensors = by_name(read_first(unpacked("msit/nested")))["root.t"].tensors
        means = {tensor.label: tensor.statistics and tensor.statistics.mean for tensor in tensors}
        assert means["output.1.0"] == 2.0
        assert means["output.1.1.0"] == 3.0
        assert means["output.1.1.2.0"] == 4.0

    def test_of_a_module_that_ran_twice_the_last_call_counts_as_in_its_files(
        self, unpacked: Unpacked
    ) -> None:
        read = read_first(unpacked("msit/nested"))
        output = tensor_of(read, "root.lin", "output.0")
        assert output.statistics is not None
        assert output.statistics.mean == pytest.approx(0.6307501)
        assert output.location is not None
        assert load_tensor(output.location).mean() == pytest.approx(0.6307501)
        assert tensor_of(read, "root.matmul", "output.0").shape == (3, 4)

    def test_rows_alone_that_share_an_index_are_told_apart_and_said_to_be_doubtful(
        self, dump_copy: Callable[[str], Path]
    ) -> None:
        path = dump_copy("nested")
        for file in path.glob("**/*.pth"):
            file.unlink()
        read = read_first(path)
        labels = [tensor.label for tensor in by_name(read)["root.t"].tensors]
        assert labels == ["input.0", "output.0", "output.0#1", "output.0#2", "output.0#3"]
        assert [(problem.file, problem.reason) for problem in read.problems] == [
            (
                "cpu_13678/0/root.t/statistics.csv",
                Message.of("dumps.msit.index_twice"),
            )
        ]
        last = tensor_of(read, "root.lin", "output.0").statistics
        assert last is not None
        assert last.mean == pytest.approx(0.6307501)

    def test_a_missing_file_is_known_by_its_row(self, dump_copy: Callable[[str], Path]) -> None:
        path = dump_copy("llama4_stats2_golden")
        (device_folder(path) / "0/root.model.layers.0.self_attn/output_1.pth").unlink()
        read = read_first(path)
        record = tensor_of(read, "root.model.layers.0.self_attn", "output.1")
        assert record.location is None
        assert record.shape == (1, 4, 6, 6)
        (problem,) = read.problems
        assert problem.reason == Message.of("dumps.msit.files_of_output_rows_missing", rows=1)

    def test_a_table_cut_in_a_row_keeps_the_rows_before(self, dump_copy: Callable[[str], Path]) -> None:
        path = dump_copy("llama4_stats1_golden")
        table = device_folder(path) / "0/root.model.layers.0.self_attn/statistics.csv"
        table.write_text(table.read_text()[:-60])
        read = read_first(path)
        assert [t.label for t in by_name(read)["root.model.layers.0.self_attn"].tensors] == ["output.0"]
        (problem,) = read.problems
        assert problem.reason == Message.of("dumps.table.bad_rows", bad=1, rows=2)


class TestOrder:
    def test_modules_stand_in_the_order_in_which_a_llama_runs_them(self, unpacked: Unpacked) -> None:
        layer = "root.model.layers.1"
        expected = [
            "root.model.embed_tokens",
            "root.model.rotary_emb",
            "root.model.layers.0",
            f"{layer}.input_layernorm",
            f"{layer}.self_attn.q_proj",
            f"{layer}.self_attn.k_proj",
            f"{layer}.self_attn.v_proj",
            f"{layer}.self_attn.o_proj",
            f"{layer}.self_attn",
            f"{layer}.post_attention_layernorm",
            f"{layer}.mlp.gate_proj",
            f"{layer}.mlp.act_fn",
            f"{layer}.mlp.up_proj",
            f"{layer}.mlp.down_proj",
            f"{layer}.mlp",
            layer,
            "root.model.layers.2",
            "root.model.layers",
            "root.model.norm",
            "root.model",
            "root.lm_head",
            "root",
        ]
        read = read_first(unpacked("msit/llama4_golden_fp32"))
        assert [node.name for node in read.nodes if node.name in expected] == expected

    def test_the_last_matmul_of_an_attention_comes_after_the_softmax_that_fed_it(
        self, unpacked: Unpacked
    ) -> None:
        nodes = by_name(read_first(unpacked("msit/llama4_api")))
        attention = "root.model.layers.3.self_attn"
        names = ["v_proj", "softmax", "matmul", "o_proj"]
        orders = [nodes[f"{attention}.{name}"].order for name in names]
        assert orders == sorted(orders)

    def test_the_order_says_where_it_comes_from(self, unpacked: Unpacked) -> None:
        assert read_first(unpacked("msit/llama4_golden_fp32")).order_origin.message == Message.of(
            "dumps.order.from_module_names_and_definition", orderings=18
        )
        without_values = read_first(unpacked("msit/llama4_logits_golden")).order_origin
        assert without_values.message.arguments == {"orderings": 0}

    @pytest.mark.parametrize("name", ["llama4_golden_fp32", "llama4_api", "llama4_stats1_golden"])
    def test_the_order_is_the_same_in_all_tokens(self, unpacked: Unpacked, name: str) -> None:
        slices = read_all(unpacked(f"msit/{name}"))[1]
        assert len({tuple(node.name for node in read.nodes) for read in slices}) == 1


class TestWhereADumpIsNamed:
    @pytest.mark.parametrize("up", range(4))
    def test_any_folder_from_the_process_up_is_the_dump(self, unpacked: Unpacked, up: int) -> None:
        path = device_folder(unpacked("msit/nested"))
        for _ in range(up):
            path = path.parent
        assert READER.recognise(path) == (
            Message.of("dumps.msit.trees", file="model_tree.json", folders="cpu_13678"),
            Message.of("dumps.msit.token_folders", count=2),
        )
        assert len(READER.open_dump(path).slices) == 2

    def test_a_token_folder_is_a_dump_of_that_token(self, unpacked: Unpacked) -> None:
        (listing,) = READER.open_dump(device_folder(unpacked("msit/nested")) / "1").slices
        assert listing.coordinates == Coordinates(token=1)

    def test_a_folder_of_two_dumps_is_not_one_of_them(self, unpacked: Unpacked, tmp_path: Path) -> None:
        for name in "nested", "llama4_logits_golden":
            shutil.copytree(unpacked(f"msit/{name}"), tmp_path / name)
        assert READER.recognise(tmp_path) == ()
        with pytest.raises(DumpNotRecognisedError):
            READER.open_dump(tmp_path)

    @pytest.mark.parametrize(
        ("folders", "ranks"),
        [
            (["npu0_100", "npu10_101", "npu2_102"], [0, 10, 2]),
            (["cpu_100", "cpu_101"], [0, 1]),
            (["cuda0_100", "cuda0_101"], [0, 1]),
        ],
    )
    def test_processes_are_ranks(
        self, unpacked: Unpacked, tmp_path: Path, folders: list[str], ranks: list[int]
    ) -> None:
        for folder in folders:
            shutil.copytree(device_folder(unpacked("msit/nested")), tmp_path / "torch_tensors" / folder)
        listings = READER.open_dump(tmp_path).slices
        assert [listing.coordinates for listing in listings] == [
            Coordinates(rank=rank, token=token) for token in (0, 1) for rank in sorted(ranks)
        ]
        found = {listing.coordinates.rank: listing.directory.parent.name for listing in listings}
        assert found == dict(zip(ranks, folders, strict=True))


class TestDamage:
    def test_a_bad_file_spoils_only_its_own_tensor(self, dump_copy: Callable[[str], Path]) -> None:
        path = dump_copy("llama4_golden_fp32")
        token = device_folder(path) / "0"
        cut, empty, foreign = (
            token / name / "output.pth"
            for name in ("root.lm_head", "root.model.norm", "root.model.embed_tokens")
        )
        cut.write_bytes(cut.read_bytes()[:1000])
        empty.write_bytes(b"")
        foreign.write_text("hello")
        read = read_first(path)
        records = [record for node in read.nodes for record in node.tensors if record.problem]
        assert {record.problem for record in records} == {
            problem_of("output.pth", "dumps.zip.cut_short"),
            problem_of("output.pth", "dumps.file.empty"),
            problem_of("output.pth", "dumps.pt.not_one"),
        }
        assert all(record.location is not None for record in records)
        assert sum(len(node.tensors) for node in read.nodes) == 113

    @pytest.mark.parametrize(
        "content",
        ["", '{"name": "root"', "[]", '{"name": "root"}', '{"name": 3, "type": "", "children": []}'],
    )
    def test_a_damaged_tree_is_replaced_by_the_names_of_folders(
        self, dump_copy: Callable[[str], Path], content: str
    ) -> None:
        path = dump_copy("llama4_stats2_golden")
        (device_folder(path) / "model_tree.json").write_text(content)
        self.assert_tree_from_folders(path)

    def test_a_missing_tree_is_replaced_by_the_names_of_folders(
        self, dump_copy: Callable[[str], Path]
    ) -> None:
        path = dump_copy("llama4_stats2_golden")
        (device_folder(path) / "model_tree.json").unlink()
        self.assert_tree_from_folders(path)

    def assert_tree_from_folders(self, path: Path) -> None:
        read = read_first(path)
        nodes = by_name(read)
        assert len(nodes) == 59
        assert nodes["root.model.layers"].parent == "root.model"
        assert nodes["root.model.layers.0.mlp"].type_name == "LlamaMLP"
        assert nodes["root.model.layers.2"].order < nodes["root.model.layers.3"].order
        (problem,) = read.problems
        assert problem.file.endswith("model_tree.json")
        assert "dumps.msit.tree_from_folders" in ids_of(problem.reason)

    def test_a_tree_cut_short_by_a_crash_is_completed_from_folders(
        self, dump_copy: Callable[[str], Path]
    ) -> None:
        path = dump_copy("llama4_api")
        tree = {"name": "root", "type": "LlamaMLP", "children": []}
        (device_folder(path) / "model_tree.json").write_text(json.dumps(tree))
        read = read_first(path)
        nodes = by_name(read)
        assert len(nodes) == 80
        assert nodes["root.model.layers.0.self_attn.matmul"].kind is NodeKind.API
        assert nodes["root.model.layers.0.self_attn"].kind is NodeKind.MODULE
        assert [problem.reason for problem in read.problems] == [Message.of("dumps.msit.modules_missing")]

    def test_a_tree_with_endless_names_is_read(self, dump_copy: Callable[[str], Path]) -> None:
        path = dump_copy("nested")
        child = {"name": "root." + "9" * 5000, "type": "x" * 5000, "children": []}
        tree = {"name": "root", "type": "M", "children": [child]}
        (device_folder(path) / "model_tree.json").write_text(json.dumps(tree))
        assert str(child["name"]) in by_name(read_first(path))

    def test_what_is_not_part_of_a_dump_is_named(self, dump_copy: Callable[[str], Path]) -> None:
        path = dump_copy("nested")
        token = device_folder(path) / "0"
        (token / "notes.txt").write_text("x")
        (token / "root.lin/output.npy").write_text("x")
        (token / "root.lin/sub").mkdir()
        (problem,) = read_first(path).problems
        assert problem.file == "cpu_13678/0"
        assert problem.reason == passed_over("notes.txt", "root.lin/output.npy", "root.lin/sub")

    def test_two_files_of_one_number_are_both_kept(self, dump_copy: Callable[[str], Path]) -> None:
        path = dump_copy("llama4_golden_fp32")
        folder = device_folder(path) / "0/root.lm_head"
        shutil.copy(folder / "output.pth", folder / "output_0.pth")
        read = read_first(path)
        labels = [tensor.label for tensor in by_name(read)["root.lm_head"].tensors]
        assert labels == ["input.0", "output.0", "output.0#1"]
        (problem,) = read.problems
        assert problem.reason == Message.of("dumps.msit.number_twice")

    def test_a_token_that_vanished_is_unreadable(self, dump_copy: Callable[[str], Path]) -> None:
        path = dump_copy("nested")
        dump = READER.open_dump(path)
        shutil.rmtree(device_folder(path) / "1")
        with pytest.raises(DumpUnreadableError):
            READER.read_slice(dump, dump.slices[1])

    def test_a_process_without_tokens_is_a_problem(self, dump_copy: Callable[[str], Path]) -> None:
        path = dump_copy("nested")
        for token in "01":
            shutil.rmtree(device_folder(path) / token)
        dump = READER.open_dump(path)
        assert dump.slices == ()
        assert [problem.reason for problem in dump.problems] == [Message.of("dumps.msit.no_token_folder")]

    def test_what_lies_beside_the_tokens_is_named(self, dump_copy: Callable[[str], Path]) -> None:
        path = dump_copy("llama4_weights")
        device = device_folder(path)
        (device / "007").mkdir()
        (device / "log.txt").write_text("x")
        (device / "weights/readme.md").write_text("x")
        (problem,) = READER.open_dump(path).problems
        assert problem.file == device.name
        assert problem.reason == passed_over("007", "log.txt", "weights/readme.md")

    def test_a_container_in_place_of_a_tensor_gives_all_it_holds(
        self, dump_copy: Callable[[str], Path]
    ) -> None:
        path = dump_copy("nested")
        file = device_folder(path) / "0/root.d/output.pth"
        torch.save({"a": torch.ones(2), "b": [torch.ones(3)]}, file)
        labels = [tensor.label for tensor in by_name(read_first(path))["root.d"].tensors]
        assert labels == ["input.0", "output.0.a", "output.0.b.0"]

    def test_hostile_names_are_data(self, dump_copy: Callable[[str], Path]) -> None:
        path = dump_copy("nested")
        token = device_folder(path) / "0"
        names = ["root.<script>alert(1)</script>".replace("/", "_"), "root.a\nb", "root.…..", "root.%s{0}"]
        for name in names:
            shutil.copytree(token / "root.lin", token / name)
        shutil.copytree(bytes(token / "root.lin"), bytes(token) + b"/root.\xff")
        nodes = by_name(read_first(path))
        assert {*names, "root.\\xff"} <= nodes.keys()
        for name in nodes:
            name.encode()
