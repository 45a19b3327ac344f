"""The laboratory writes msit's layout as the real tool does.

Held against a dump by msit itself of a model that gives tuples in tuples, lists of one, nothing and objects,
and runs a module twice.
"""

import csv
import json
import sys
import tarfile
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "truth"))

from msit_layout import Parts, Recorder
from plan import msit_dump

from firstdrift.dumps.detect import open_dump

DUMPS = Path(__file__).parents[1] / "dumps" / "msit"


class T(nn.Module):
    def forward(self, given: Tensor) -> object:
        return given * 2, (given + 1, (given * 2, None, [given + 3]))


class D(nn.Module):
    def forward(self, given: Tensor) -> object:
        return {"inner": given}


class One(nn.Module):
    def forward(self, given: Tensor) -> object:
        return (given,)


class M(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.t, self.d, self.one = T(), D(), One()
        self.lin, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, given: Tensor) -> Tensor:
        first, _ = self.t(given)
        self.one(self.d(first)["inner"])
        return self.lin(self.lin(first))


def written(folder: Path, parts: Parts) -> Path:
    recorder, model = Recorder(folder, parts), M()
    recorder.watch(model)
    with torch.no_grad():
        for _ in range(2):
            model(torch.full((3, 4), 2.0))
    return next(folder.glob("msit_dump_*/torch_tensors/*"))


def real(folder: Path) -> Path:
    with tarfile.open(DUMPS / "nested.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return next(folder.glob("*/msit_dump_*/torch_tensors/*"))


def files(place: Path) -> set[str]:
    """List the files of a dump, without operators, which the laboratory does not write."""
    found = {str(file.relative_to(place)) for file in place.rglob("*") if file.is_file()}
    return {name for name in found if "root.matmul" not in name}


def rows(file: Path) -> list[list[str]]:
    """Return the rows of statistics without their numbers."""
    with file.open(newline="", encoding="utf-8") as lines:
        return [row[:6] for row in csv.reader(lines)]


def test_files_are_those_of_the_tool(tmp_path: Path) -> None:
    ours, theirs = written(tmp_path / "ours", Parts(statistics=True)), real(tmp_path / "theirs")
    assert files(ours) == files(theirs)
    assert {"0/root.t/output_1_1_2_0.pth", "1/root.lin/output.pth"} <= files(ours)


@pytest.mark.parametrize("module", ["root", "root.t", "root.lin", "root.one", "root.d"])
def test_statistics_have_a_row_for_each_run_of_a_module(module: str, tmp_path: Path) -> None:
    ours, theirs = written(tmp_path / "ours", Parts(statistics=True)), real(tmp_path / "theirs")
    name = f"1/{module}/statistics.csv"
    assert rows(ours / name) == rows(theirs / name)


def test_the_tree_is_that_of_the_tool(tmp_path: Path) -> None:
    ours, theirs = written(tmp_path / "ours", Parts()), real(tmp_path / "theirs")
    one, other = (json.loads(place.joinpath("model_tree.json").read_text()) for place in (ours, theirs))
    assert one == other


def test_what_is_written_is_read_as_a_dump_of_msit(tmp_path: Path) -> None:
    written(tmp_path, Parts(weights=True))
    slices = open_dump(tmp_path).slices
    assert [one.coordinates.token for one in slices] == [0, 1]


@pytest.mark.parametrize(("kind", "level"), [("weights_bf16", "msit_weights"), ("no_residual", "msit")])
def test_what_all_weights_have_is_tried_where_weights_are_written(kind: str, level: str) -> None:
    assert msit_dump(kind, ("tensor", "msit")) == ("tensor", level)
