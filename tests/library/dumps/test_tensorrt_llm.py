"""Files of TensorRT-LLM's debug hook, named and filled as its source names and fills them."""

import inspect
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import ids_of, passed_over
from torch import nn

from firstdrift.comparison.compare import compare
from firstdrift.dumps.detect import open_dump, recognise
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import FirstdriftError
from firstdrift.model.slice import Coordinates, Slice
from firstdrift.parallel.slices import read_slice


class Hook:
    """Saves what modules take and give as the hook does: a stack of names, a counter for each depth."""

    def __init__(self, model: nn.Module, folder: Path) -> None:
        self.folder, self.names, self.counters = folder, [], []
        folder.mkdir(parents=True, exist_ok=True)
        for name, module in model.named_modules():
            if name:
                module.register_forward_pre_hook(self.before, with_kwargs=True)
                module.register_forward_hook(self.after, with_kwargs=True)

    def before(self, module: nn.Module, args: Any, _kwargs: Any) -> None:  # noqa: ANN401
        self.names.append(type(module).__name__)
        if not self.counters:
            self.counters.append(0)
        if len(self.names) >= len(self.counters):
            self.counters.append(0)
        self.counters[len(self.names) - 1] += 1
        self.save(module, args, "input")

    def after(self, module: nn.Module, args: Any, _kwargs: Any, output: Any) -> None:  # noqa: ANN401
        self.save(module, [args, output], "output")
        self.names.pop()
        self.counters.pop()

    def save(self, module: nn.Module, values: Any, role: str) -> None:  # noqa: ANN401
        arguments = inspect.getfullargspec(module.forward).args[1:]
        place = "-".join(f"{number}.{name}" for number, name in zip(self.counters, self.names, strict=False))
        for at, value in enumerate(flat(values)):
            key = arguments[at] if at < len(arguments) else at
            torch.save(value, self.folder / f"{place}-{role}.{key}.pt")


def flat(values: Any) -> list[torch.Tensor]:  # noqa: ANN401
    if isinstance(values, torch.Tensor):
        return [values]
    return [one for value in values for one in flat(value)] if isinstance(values, tuple | list) else []


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(self.act(self.up(hidden)))


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model, self.lm_head = Body(), nn.Linear(8, 4)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.lm_head(self.model(hidden))


@torch.no_grad()
def run(folder: Path, factor: float = 1.0, passes: int = 1, rank: int = 0) -> Path:
    torch.manual_seed(3)
    model = Model()
    model.model.layers[1].down.weight *= factor
    Hook(model, folder / f"rank{rank}")
    for _ in range(passes):
        model(torch.randn(5, 8))
    return folder


def read(path: Path, at: int = 0) -> Slice:
    dump = open_dump(path)
    assert dump.format == "tensorrt-llm"
    return read_slice(dump, dump.slices[at])


def test_a_fault_is_found_at_the_module_where_it_was_planted(tmp_path: Path) -> None:
    golden, target = run(tmp_path / "golden"), run(tmp_path / "target", factor=1.5)
    found = compare(golden, target).findings.first_bad_node
    assert found is not None
    assert found.module == "Body.Layer.1.Linear.1"
    assert compare(golden, golden).counts.error == 0


def test_modules_are_numbered_among_those_of_their_class(tmp_path: Path) -> None:
    nodes = {node.name: node for node in read(run(tmp_path)).nodes}
    assert list(nodes)[-2:] == ["Body", "Linear"]
    assert [record.label for record in nodes["Body.Layer.2.Linear.0"].tensors] == [
        "input.input",
        "output.1",
        "output.argument.input",
    ]
    assert nodes["Body.Layer.2.ReLU"].parent == "Body.Layer.2"
    assert nodes["Body.Layer.2"].type_name == "Layer"
    assert [name for name in nodes if name.startswith("Body.Layer.1")] == [
        "Body.Layer.1.Linear.0",
        "Body.Layer.1.ReLU",
        "Body.Layer.1.Linear.1",
        "Body.Layer.1",
    ]


def test_passes_are_steps_and_folders_are_ranks(tmp_path: Path) -> None:
    for rank in range(2):
        run(tmp_path, passes=3, rank=rank)
    dump = open_dump(tmp_path)
    assert [one.coordinates for one in dump.slices] == [
        Coordinates(step, rank) for step in range(3) for rank in range(2)
    ]
    slices = [read_slice(dump, one) for one in dump.slices]
    assert len({tuple(node.name for node in one.nodes) for one in slices}) == 1
    assert open_dump(tmp_path / "rank1").slices[0].coordinates == Coordinates(0)


def test_a_damaged_file_spoils_its_own_tensor(tmp_path: Path) -> None:
    golden, target = run(tmp_path / "golden"), run(tmp_path / "target")
    broken = next((target / "rank0").glob("*ReLU-output.1.pt"))
    broken.write_bytes(broken.read_bytes()[:100])
    (target / "rank0" / "notes.txt").write_text("")
    assert [problem.reason for problem in open_dump(target).problems] == [passed_over("notes.txt")]
    report = compare(golden, target)
    assert (report.counts.incomparable, report.counts.error) == (1, 0)


def test_a_link_out_of_the_dump_is_not_followed(tmp_path: Path) -> None:
    outside = next((run(tmp_path / "outside") / "rank0").iterdir())
    folder = run(tmp_path / "dump") / "rank0"
    (folder / "9.Linear-input.input.pt").symlink_to(outside)
    records = [record for node in read(folder).nodes for record in node.tensors]
    assert [ids_of(record.problem)[-1] for record in records if record.problem] == ["dumps.link.leads_out"]


@pytest.mark.parametrize(
    "name", ["1.A.pt", "A-input.x.pt", "1.A-inputs.x.pt", "1.A-input.x.npy", "-input.x.pt"]
)
def test_other_files_are_no_dump(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    found = recognise(tmp_path)
    assert found is None or found[0] != "tensorrt-llm"


parts = st.lists(st.sampled_from(["1.A", "2.A", "10.B", "1.C-D", "3.E.F", "x"]), min_size=1, max_size=4)
files = st.tuples(parts, st.sampled_from(["input.x", "output.x", "output.1", "other"]))


@settings(max_examples=50, deadline=None)
@given(st.lists(files, min_size=1, max_size=6))
def test_any_names_are_read_or_passed_over(named: list[tuple[list[str], str]]) -> None:
    with TemporaryDirectory() as folder:
        names = {f"{'-'.join(place)}-{role}.pt" for place, role in named}
        for at, name in enumerate(sorted(names)):
            torch.save(torch.tensor(at), Path(folder) / name)
        with suppress(FirstdriftError):
            if (recognise(Path(folder)) or ("", ()))[0] != "tensorrt-llm":
                return
            dump = open_dump(Path(folder))
            nodes = [node for listing in dump.slices for node in read_slice(dump, listing).nodes]
            found = [load_tensor(record.location).item() for node in nodes for record in node.tensors]
            assert len(found) == len(set(found))
            left = sum(dict(problem.reason.arguments)["count"] for problem in dump.problems)
            assert len(found) + left == len(names)
