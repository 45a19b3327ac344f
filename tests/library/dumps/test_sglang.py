"""Files named and filled as SGLang's dumper names and fills them."""

from contextlib import suppress
from pathlib import Path

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from messages import ids_of, passed_over, refuses

from firstdrift.comparison.compare import compare
from firstdrift.dumps.detect import open_dump, recognise
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import DumpNotRecognisedError, FirstdriftError
from firstdrift.model.node import Direction
from firstdrift.model.slice import RECORDED_ORDER, Coordinates, Slice
from firstdrift.parallel.slices import read_slice


class Dumper:
    """Saves tensors as the dumper does: a file each, its tags in its name."""

    def __init__(self, folder: Path, step: int = 0, rank: int = 0) -> None:
        self.folder, self.step, self.rank, self.index = folder, step, rank, 0
        folder.mkdir(parents=True, exist_ok=True)

    def dump(self, name: str, value: object, **tags: object) -> Path:
        self.index += 1
        said = {"step": self.step, "rank": self.rank, "dump_index": self.index, "name": name, **tags}
        file = self.folder / ("___".join(f"{key}={value}" for key, value in said.items()) + ".pt")
        torch.save({"value": value, "meta": {**said, "world_size": 2, "dims": "t h[tp]"}}, file)
        return file


def write_model(folder: Path, factor: float = 1.0, **place: int) -> Path:
    """Run two layers and save what their modules take and give, as the hooks do."""
    dumper = Dumper(folder, **place)
    made = torch.Generator().manual_seed(7)
    weights = [torch.randn(16, 16, generator=made) for _ in range(2)]
    for layer, weight in enumerate(weights):
        dumper.dump(f"param__model.layers.{layer}.mlp.weight", weight)
    hidden = torch.randn(5, 16, generator=made)
    for layer, weight in enumerate(weights):
        path = f"non_intrusive__model.layers.{layer}"
        dumper.dump(f"{path}.inputs.hidden_states", hidden, layer_id=layer)
        dumper.dump(f"{path}.mlp.inputs.0", hidden, layer_id=layer)
        hidden = torch.tanh(hidden @ weight) * (factor if layer == 1 else 1.0)
        dumper.dump(f"{path}.mlp.output", hidden, layer_id=layer)
        dumper.dump(f"{path}.output.0", hidden)
        dumper.dump(f"{path}.output.1", hidden + 1)
        dumper.dump("after_layer", hidden, layer_id=layer)
    dumper.dump("logits", hidden)
    dumper.dump("grad__logits", hidden)
    return folder


def read(path: Path, at: int = 0) -> Slice:
    dump = open_dump(path)
    assert dump.format == "sglang"
    return read_slice(dump, dump.slices[at])


def test_names_say_module_role_and_order(tmp_path: Path) -> None:
    slice_ = read(write_model(tmp_path))
    found = {node.name: [record.label for record in node.tensors] for node in slice_.nodes}
    assert found == {
        "model.layers.0.mlp": ["parameter.weight", "input.0", "output.0"],
        "model.layers.0": ["input.hidden_states", "output.0", "output.1"],
        "layers.0.after_layer": ["output.0"],
        "layers.0": [],
        "model.layers.1.mlp": ["parameter.weight", "input.0", "output.0"],
        "model.layers.1": ["input.hidden_states", "output.0", "output.1"],
        "model": [],
        "layers.1.after_layer": ["output.0"],
        "layers.1": [],
        "logits": ["output.0"],
        "logits.backward": ["gradient.0"],
    }
    assert slice_.order_origin == RECORDED_ORDER
    names = [node.name for node in slice_.nodes]
    assert names.index("model.layers.0.mlp") < names.index("model.layers.0") < names.index("model.layers.1")
    assert slice_.nodes[names.index("logits.backward")].direction is Direction.BACKWARD
    for node in slice_.nodes:
        for record in node.tensors:
            assert record.location is not None
            assert load_tensor(record.location).shape == record.shape


def test_the_first_bad_module_is_found(tmp_path: Path) -> None:
    golden, target = write_model(tmp_path / "golden"), write_model(tmp_path / "target", factor=1.5)
    report = compare(golden, target)
    assert report.findings.first_bad_node is not None
    assert report.findings.first_bad_node.module == "model.layers.1.mlp"
    assert compare(golden, golden).counts.error == 0


def test_steps_and_ranks_are_slices(tmp_path: Path) -> None:
    for step in range(2):
        for rank in range(2):
            write_model(tmp_path / "dump_1", step=step, rank=rank)
    dump = open_dump(tmp_path)
    assert [listing.coordinates for listing in dump.slices] == [
        Coordinates(step, rank) for step in range(2) for rank in range(2)
    ]
    assert dump.evidence[0].id == "dumps.sglang.file"


def test_a_module_that_is_called_again_is_another_node(tmp_path: Path) -> None:
    dumper = Dumper(tmp_path)
    for _ in range(2):
        dumper.dump("non_intrusive__norm.inputs.0", torch.ones(2))
        dumper.dump("non_intrusive__norm.output", torch.ones(2))
    assert [(node.path, node.call, len(node.tensors)) for node in read(tmp_path).nodes] == [
        ("norm", 0, 2),
        ("norm", 1, 2),
    ]


def test_a_saved_name_that_looks_like_a_gradient_or_a_call_is_a_node_of_its_own(tmp_path: Path) -> None:
    dumper = Dumper(tmp_path)
    for name in ("x.backward", "grad__x", "x", "x", "x (call 1)"):
        dumper.dump(name, torch.ones(2))
    nodes = {node.name: node for node in read(tmp_path).nodes}
    assert {name for name in nodes if nodes[name].tensors} == {
        "x.backward",
        "x.backward#1",
        "x",
        "x (call 1)",
        "x (call 1)#1",
    }
    assert nodes["x.backward#1"].direction is Direction.BACKWARD
    assert len(nodes["x.backward#1"].tensors) == 1


def test_other_tags_tell_values_apart(tmp_path: Path) -> None:
    dumper = Dumper(tmp_path)
    dumper.dump("x", torch.ones(2), phase="a")
    dumper.dump("x", torch.ones(2), phase="b")
    dumper.dump("x", torch.ones(2), phase="1.5")
    assert [node.path for node in read(tmp_path).nodes] == ["x[phase=a]", "x[phase=b]", "x[phase=1_5]"]


def test_files_of_earlier_releases_are_read(tmp_path: Path) -> None:
    torch.save(torch.ones(3), tmp_path / "forward_pass_id=2___rank=0___name=logits___dump_index=1.pt")
    slice_ = read(tmp_path)
    assert slice_.coordinates == Coordinates(step=2, rank=0)
    ((record,),) = [node.tensors for node in slice_.nodes]
    assert (record.label, record.shape, record.problem) == ("output.0", (3,), None)


def test_values_that_hold_several_tensors_give_them_all(tmp_path: Path) -> None:
    Dumper(tmp_path).dump("pair", {"k": torch.ones(2), "v": [torch.ones(3)]})
    ((k, v),) = [node.tensors for node in read(tmp_path).nodes]
    assert (k.label, v.label) == ("output.0.k", "output.0.v.0")


def test_a_damaged_file_spoils_its_own_tensor(tmp_path: Path) -> None:
    golden, target = write_model(tmp_path / "golden"), write_model(tmp_path / "target")
    broken = next(target.glob("*name=logits.pt"))
    broken.write_bytes(broken.read_bytes()[:100])
    Dumper(target, rank=0).dump("nothing", 3)
    (target / "notes.txt").write_text("")
    problems = [record.problem for node in read(target).nodes for record in node.tensors if record.problem]
    assert len(problems) == 2
    assert any("dumps.file.no_tensor" in ids_of(problem) for problem in problems)
    (problem,) = open_dump(target).problems
    assert problem.reason == passed_over("notes.txt")
    report = compare(golden, target)
    assert (report.counts.incomparable, report.counts.error) == (1, 0)


def test_runs_beside_each_other_are_not_mixed(tmp_path: Path) -> None:
    write_model(tmp_path / "dump_1")
    write_model(tmp_path / "dump_2")
    with refuses(DumpNotRecognisedError, "dumps.several", dumps=("dump_1", "dump_2")):
        open_dump(tmp_path)


tags = st.sampled_from(["step", "rank", "dump_index", "name", "layer_id", "x"])
values = st.sampled_from(
    ["0", "1", "007", "grad__a", "param__w", "non_intrusive__", "a.b.output", ".", "é", "="]
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(names=st.lists(st.lists(st.tuples(tags, values), max_size=6), min_size=1, max_size=4))
def test_any_names_are_read_or_refused_with_a_reason(
    tmp_path: Path, names: list[list[tuple[str, str]]]
) -> None:
    for old in tmp_path.glob("*.pt"):
        old.unlink()
    written = set()
    for name in names:
        file = tmp_path / ("___".join(f"{tag}={value}" for tag, value in name) + ".pt")
        file.write_bytes(b"no tensor")
        written.add(file)
    with suppress(FirstdriftError):
        if recognise(tmp_path) is not None:
            dump = open_dump(tmp_path)
            read_all = [read_slice(dump, listing) for listing in dump.slices]
            found = [record for one in read_all for node in one.nodes for record in node.tensors]
            assert 0 < len(found) <= len(written)
            assert all(record.problem for record in found)
