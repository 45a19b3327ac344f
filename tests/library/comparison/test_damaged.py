"""A damaged file spoils its own tensor, which is listed with file and reason; all else is compared."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from messages import ids_of, outline, says

from firstdrift import Options, Report, compare
from firstdrift.errors import DumpUnreadableError
from firstdrift.matching.plan import MatchingRules
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named
from firstdrift.wording.text import text_of

Unpacked = Callable[[str], Path]

MSIT_PAIRS, MSPROBE_PAIRS = 40, 344
SIDES = ("golden", "target")


def own(file: Path) -> None:
    """Replace a link by a copy."""
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content)


class Pair:
    """Two healthy dumps, and a file of one of them that may be harmed: all others are links."""

    def __init__(self, folder: Path, dumps: dict[str, Path], file: str, side: str) -> None:
        self.side = side
        self.golden, self.target = (folder / side for side in SIDES)
        for name in SIDES:
            if name == side:
                shutil.copytree(dumps[name], folder / name, copy_function=os.link)
            else:
                (folder / name).symlink_to(dumps[name])
        (self.file,) = (folder / side).glob(file)
        own(self.file)

    def compare(self) -> Report:
        """Compare them; the damage was done long ago, so that nobody is taken to be writing still."""
        if self.file.is_file():
            os.utime(self.file, (1, 1))
        return compare(self.golden, self.target)


@pytest.fixture(params=SIDES)
def msit(unpacked: Unpacked, tmp_path: Path, request: pytest.FixtureRequest) -> Pair:
    dumps = dict.fromkeys(SIDES, unpacked("msit/llama4_filter"))
    file = "*/torch_tensors/*/1/root.model.layers.1.mlp.down_proj/output.pth"
    return Pair(tmp_path, dumps, file, request.param)


@pytest.fixture(params=SIDES)
def msprobe(unpacked: Unpacked, tmp_path: Path, request: pytest.FixtureRequest) -> Pair:
    dump = unpacked("msprobe/llama_tensor_L0_bf16")
    file = "step0/rank0/dump_tensor_data/Module.model.layers.1.mlp.down_proj.Linear.forward.0.output.0.pt"
    return Pair(tmp_path, {side: dump / side for side in SIDES}, file, request.param)


def cut(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def overwrite(file: Path) -> None:
    file.write_text("this was a tensor once")


def replace_by_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def replace_by_program(file: Path) -> None:
    class Program:
        def __reduce__(self) -> tuple[object, ...]:
            return os.system, (f"touch {file.parent / 'EXECUTED'}",)

    torch.save(Program(), file)


def replace_by_bare_pickle(file: Path) -> None:
    file.write_bytes(pickle.dumps({"a": 1}))


HARM = {
    cut: "dumps.zip.cut_short",
    empty: "dumps.file.empty",
    overwrite: "dumps.pt.not_one",
    replace_by_directory: "files.not_regular",
    replace_by_program: "dumps.pt.unknown_builder",
    replace_by_bare_pickle: "dumps.pt.other_pickle",
}
harmed = pytest.mark.parametrize("harm", HARM, ids=lambda harm: harm.__name__)


def require_one_row(report: Report, pair: Pair, pairs: int, reason: str) -> None:
    """Require that one tensor, and nothing else, is incomparable, and that its row says which and why."""
    assert report.counts.pairs == pairs
    assert (report.counts.incomparable, report.counts.passed) == (1, pairs - 1)
    assert report.unreadable == 1
    assert report.findings.first_bad_node is None
    frame = report.frame()
    (row,) = frame[frame["verdict"] == "incomparable"].to_dict("records")
    assert "layers.1.mlp.down_proj" in row["target_node"]
    assert row["target_tensor"] == "output.0"
    assert row["measured_from"] == "incomparable"
    assert says(row["reasons"], reason)
    assert text_of(side_named(pair.side)) in row["reasons"]
    assert pair.file.name in row["reasons"]
    ((_, listed, said),) = report.incomparable()
    assert listed.target_node == row["target_node"]
    assert text_of(said) == row["reasons"]


@harmed
def test_a_damaged_file_of_msit_spoils_one_tensor(msit: Pair, harm: Callable[[Path], None]) -> None:
    harm(msit.file)
    require_one_row(msit.compare(), msit, MSIT_PAIRS, HARM[harm])
    assert not (msit.file.parent / "EXECUTED").exists()


@harmed
def test_a_damaged_file_of_msprobe_spoils_one_tensor(msprobe: Pair, harm: Callable[[Path], None]) -> None:
    harm(msprobe.file)
    require_one_row(msprobe.compare(), msprobe, MSPROBE_PAIRS, HARM[harm])
    assert not (msprobe.file.parent / "EXECUTED").exists()


def test_a_missing_file_of_msprobe_spoils_one_tensor(msprobe: Pair) -> None:
    msprobe.file.unlink()
    require_one_row(msprobe.compare(), msprobe, MSPROBE_PAIRS, "dumps.record.file_missing")


def test_a_missing_file_of_msit_leaves_its_partner_over(msit: Pair) -> None:
    msit.file.unlink()
    report = msit.compare()
    assert report.counts.pairs == report.counts.passed == MSIT_PAIRS - 1
    left = report.slices[1].plan
    other = left.unmatched_target_tensors if msit.side == "golden" else left.unmatched_golden_tensors
    (unmatched,) = other
    assert unmatched.node == "root.model.layers.1.mlp.down_proj"
    assert unmatched.record.label == "output.0"


def test_a_missing_model_tree_of_msit_costs_the_names_of_classes_alone(msit: Pair) -> None:
    for side, whole in ((msit.golden, msit.target), (msit.target, msit.golden)):
        if side.is_symlink():
            continue
        (tree,) = side.glob("*/torch_tensors/*/model_tree.json")
        tree.unlink()
        reports = compare(side, whole), compare(whole, side)
        assert [report.counts.passed for report in reports] == [MSIT_PAIRS] * 2


def test_another_shape_than_recorded_spoils_one_tensor(msprobe: Pair) -> None:
    torch.save(torch.ones(3, 2), msprobe.file)
    report = msprobe.compare()
    assert (report.counts.incomparable, report.unreadable) == (1, 1)
    ((_, _, said),) = report.incomparable()
    assert "metrics.shapes_differ" in ids_of(said)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_whole_numbers_where_fractions_should_be_are_incomparable(msit: Pair, dtype: torch.dtype) -> None:
    torch.save((torch.rand(1, 1, 64) * 9).to(dtype), msit.file)
    report = msit.compare()
    assert (report.counts.incomparable, report.counts.passed) == (1, MSIT_PAIRS - 1)
    ((_, _, said),) = report.incomparable()
    kinds = {"golden": "float32", "target": "float32", msit.side: str(dtype).removeprefix("torch.")}
    assert said == Message.of("pair.other_kinds", **kinds)
    assert report.unreadable == 0, "it could be read"


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.float8_e4m3fn])
def test_other_values_in_another_dtype_are_a_fault(msit: Pair, dtype: torch.dtype) -> None:
    torch.save(torch.ones(1, 1, 64).to(dtype), msit.file)
    bad = msit.compare().findings.first_bad_node
    assert bad is not None
    assert bad.module == "model.layers.1.mlp.down_proj"
    assert bad.coordinates.token == 1


def test_a_file_that_the_slices_share_is_one_problem(msit: Pair) -> None:
    (tree,) = getattr(msit, msit.side).glob("*/torch_tensors/*/model_tree.json")
    tree.unlink()
    report = msit.compare()
    assert len(report.slices) > 1
    (problem,) = (report.golden if msit.side == "golden" else report.target).problems
    assert problem.file.endswith("model_tree.json")


HOSTILE_FILE_NAMES = [
    "output_<script>\x1b[31m.pth",
    "evil\n.pth",
    os.fsdecode(b"output_\xff.pth"),
    "\u202e.pth",
]


@pytest.mark.parametrize("name", HOSTILE_FILE_NAMES, ids=ascii)
def test_a_hostile_file_name_is_a_remark_and_harms_nothing(msit: Pair, name: str) -> None:
    shutil.copy(msit.file, msit.file.with_name(name))
    report = msit.compare()
    assert report.counts.passed == MSIT_PAIRS
    (problem,) = (report.golden if msit.side == "golden" else report.target).problems
    (said,) = problem.reason.arguments["names"]  # type: ignore[misc]
    assert problem.reason.id == "dumps.folder.passed_over"
    assert os.fsencode(name).decode(errors="backslashreplace") in str(said)


@pytest.mark.parametrize(
    "name", ["../../../../etc/passwd", "/etc/passwd", "dir/x.pt", "x\0.pt", "<img>.pt", "a.exe", 5, ""]
)
def test_a_hostile_name_of_a_data_file_is_never_followed(msprobe: Pair, name: object) -> None:
    file = msprobe.file.parents[1] / "dump.json"
    own(file)
    recorded = json.loads(file.read_text())
    node = "Module.model.layers.1.mlp.down_proj.Linear.forward.0"
    recorded["data"][node]["output"][0]["data_name"] = name
    file.write_text(json.dumps(recorded))
    report = msprobe.compare()
    assert (report.counts.incomparable, report.counts.passed) == (1, MSPROBE_PAIRS - 1)
    ((_, pair, said),) = report.incomparable()
    reason = text_of(said)
    assert pair.target_node == node
    assert str(name).encode("unicode_escape").decode() in reason


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_damaged_slice_spoils_no_other(unpacked: Unpacked, tmp_path: Path, side: str, rank: int) -> None:
    dumps = unpacked("msprobe/dp2_stat_mix")
    pair = Pair(tmp_path, {name: dumps / name for name in SIDES}, f"step1/rank{rank}/dump.json", side)
    cut(pair.file)
    report = pair.compare()
    assert len(report.slices) == 3
    assert report.unreadable == 1
    assert [(left.step, left.rank) for left in report.pairing.unmatched_golden] == [(1, rank)]
    assert [(left.step, left.rank) for left in report.pairing.unmatched_target] == [(1, rank)]
    (problem,) = (report.golden if side == "golden" else report.target).problems
    assert problem.file == str(pair.file)
    assert report.findings.first_bad_node is not None
    assert report.findings.first_bad_node.module == "model.layers.0.mlp.down_proj"


def test_a_dump_of_which_nothing_can_be_read_is_an_error_that_names_the_file(
    unpacked: Unpacked, tmp_path: Path
) -> None:
    dump = unpacked("msprobe/llama_stat_mix_identical")
    pair = Pair(tmp_path, {side: dump / side for side in SIDES}, "step0/rank0/dump.json", "target")
    cut(pair.file)
    with pytest.raises(DumpUnreadableError) as caught:
        pair.compare()
    assert caught.value.path == pair.file


@pytest.mark.parametrize("harm", ["missing", "cut"])
@pytest.mark.parametrize("token", [2, None])
def test_a_missing_tensor_does_not_hide_a_fault(
    unpacked: Unpacked, tmp_path: Path, harm: str, token: int | None
) -> None:
    golden, faulty = unpacked("msit/llama12_golden_fp32"), unpacked("msit/llama12_bf16_bad_L7_T2")
    shutil.copytree(faulty, tmp_path / "target", copy_function=os.link)
    (file,) = (tmp_path / "target").glob("*/torch_tensors/*/2/root.model.layers.7.mlp/output.pth")
    own(file)
    if harm == "missing":
        file.unlink()
    else:
        os.truncate(file, 200)
    rules = MatchingRules(token=token)
    findings = compare(golden, tmp_path / "target", Options(matching=rules)).findings
    # What the layer adds is known all the same: what its norm was given, and what ends its feed-forward.
    assert findings.first_bad_token is not None
    assert findings.first_bad_token.coordinates.token == 2
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.coordinates.token == 2
    assert findings.first_bad_node.module == "model.layers.7"
    added, missing = findings.first_bad_node.reasons
    assert [part.arguments["name"] for part in added.arguments["addends"]][1:] == [
        "root.model.layers.7.mlp.down_proj"
    ]
    assert missing.id.startswith("reason.not_compared_inside")
    assert "output.0 root.model.layers.7.mlp" in outline(missing)
