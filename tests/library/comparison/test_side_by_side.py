"""Pairs of slices that are prepared side by side come out as if they were looked at one after the other."""

import faulthandler
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from firstdrift.comparison import compare as comparing
from firstdrift.comparison import from_dumps, side_by_side, slice_results
from firstdrift.comparison.compare import compare_dumps
from firstdrift.comparison.from_dumps import FromDumps, Progress
from firstdrift.comparison.rematch import preview
from firstdrift.comparison.report import Options, Report
from firstdrift.comparison.session import ComparisonSession
from firstdrift.comparison.side_by_side import SideBySide
from firstdrift.comparison.table import lines_of
from firstdrift.errors import DumpUnreadableError, LimitError
from firstdrift.matching.manual.edits import unmatch
from firstdrift.processes import lanes
from firstdrift.processes.copies import allow_copies

Unpacked = Callable[[str], Path]
Dumps = tuple[Path, Path]

GOLDEN, TARGET = "msit/llama4_golden_fp32", "msit/llama4_perturb_L2_T3"
BAD_LOGITS = "msit/llama4_logits_golden", "msit/llama4_logits_perturb"


@pytest.fixture
def dumps(unpacked: Unpacked) -> Dumps:
    return unpacked(GOLDEN), unpacked(TARGET)


@pytest.fixture
def steps(unpacked: Unpacked, tmp_path: Path) -> Dumps:
    """Four steps, each with the same statistics."""
    dump = unpacked("msprobe/llama_stat_L0_perturb")
    for side in ("golden", "target"):
        for step in range(4):
            shutil.copytree(dump / side / "step0", tmp_path / side / f"step{step}")
    return tmp_path / "golden", tmp_path / "target"


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Let so many lanes share the slices, however few and small they are."""
    monkeypatch.setattr(comparing, "_WORTH_LANES", 0.0)
    yield lambda count: allow_copies(count - 1)
    allow_copies(0)


def answer(report: Report) -> dict[str, Any]:
    """Return all that a report says, but for how long it took."""
    fields = {name: getattr(report, name) for name in report.__struct_fields__}
    return fields | {"seconds": None, "slices": list(report.slices), "lines": list(lines_of(report))}


def in_lanes(dumps: Dumps, progress: Callable[[Progress], None] = lambda _: None, **told: Any) -> Report:  # noqa: ANN401
    return compare_dumps(dumps, Options(), progress, **told)


def what_comes_of(dumps: Dumps) -> dict[str, Any] | str:
    try:
        return answer(in_lanes(dumps))
    except DumpUnreadableError as error:
        return str(error)


@pytest.mark.parametrize("processes", [2, 3, 8])
@pytest.mark.parametrize("names", [(GOLDEN, TARGET), BAD_LOGITS])
def test_the_answer_is_the_same_with_any_number_of_lanes(
    unpacked: Unpacked, divided: Callable[[int], None], names: tuple[str, str], processes: int
) -> None:
    dumps = unpacked(names[0]), unpacked(names[1])
    alone = answer(in_lanes(dumps))
    divided(processes)
    told: list[Progress] = []
    together = in_lanes(dumps, told.append)
    assert answer(together) == alone
    assert not isinstance(together.slices, tuple)
    judged = [at.slices_done for at in told if at.stage == "measuring"]
    assert judged == sorted(judged)
    assert told[-1] == Progress("done", len(together.slices), len(together.slices))


@pytest.mark.parametrize(("processes", "in_lanes_are"), [(2, 6), (3, 6), (8, 7)])
def test_the_last_slices_are_shared_where_they_are_too_few_for_all_lanes(
    dumps: Dumps,
    divided: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    processes: int,
    in_lanes_are: int,
) -> None:
    alone = answer(in_lanes(dumps))
    monkeypatch.setattr(from_dumps, "_WORTH_SHARING", 1)
    share, run = from_dumps.share_work, SideBySide.run
    dealt: list[int] = []

    def count(self: SideBySide, positions: Sequence[int]) -> list[int]:
        dealt.append(len(positions))
        return run(self, positions)

    def share_for_long(*given: Any) -> list[Any]:  # noqa: ANN401
        time.sleep(0.3)
        return share(*given)

    monkeypatch.setattr(SideBySide, "run", count)
    monkeypatch.setattr(from_dumps, "share_work", share_for_long)
    divided(processes)
    assert answer(in_lanes(dumps)) == alone
    assert dealt == [in_lanes_are]


SEVERAL = [
    ("msit/llama12_golden_fp32", "msit/llama12_bf16_bad_L7_T2"),
    ("msit/llama12_golden_fp32", "msit/llama12_bf16"),
    ("msit/llama4_golden_fp32", "msit/llama4_twoprompts"),
    ("msprobe/llama_stat_mix_3steps", "msprobe/llama_stat_mix_3steps"),
    ("msprobe/megatron_microstep_stat_mix", "msprobe/megatron_microstep_stat_mix"),
    ("msprobe/dp2_stat_mix", "msprobe/dp2_stat_mix"),
]


@pytest.mark.parametrize("names", SEVERAL)
def test_what_is_ready_too_soon_is_judged_as_if_it_had_waited(
    unpacked: Unpacked,
    divided: Callable[[int], None],
    names: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    golden, target = map(unpacked, names)
    if golden == target:
        golden, target = golden / "golden", target / "target"
    alone = answer(in_lanes((golden, target)))
    prepare = ComparisonSession.prepare

    def wait(self: ComparisonSession, position: int) -> Any:  # noqa: ANN401
        time.sleep(0.05 * max(0, 6 - position))  # the first ones are ready last
        return prepare(self, position)

    monkeypatch.setattr(ComparisonSession, "prepare", wait)
    divided(6)
    assert answer(in_lanes((golden, target))) == alone


@pytest.mark.parametrize("begins", [0, 1, 2, 3])
@pytest.mark.parametrize("processes", [2, 3, 6])
def test_a_fault_that_begins_late_in_a_training_of_several_ranks_holds_nobody_up(
    unpacked: Unpacked, divided: Callable[[int], None], tmp_path: Path, begins: int, processes: int
) -> None:
    dump = unpacked("msprobe/dp2_stat_mix")
    for step in range(4):
        shutil.copytree(dump / "golden" / "step0", tmp_path / "golden" / f"step{step}")
        side = "golden" if step < begins else "target"
        shutil.copytree(dump / side / "step0", tmp_path / "target" / f"step{step}")
    dumps = tmp_path / "golden", tmp_path / "target"
    alone = answer(in_lanes(dumps))
    divided(processes)
    assert answer(in_lanes(dumps)) == alone


def test_one_slow_slice_does_not_let_answers_pile_up(
    dumps: Dumps, divided: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = answer(in_lanes(dumps))
    prepare, most = ComparisonSession.prepare, [0]

    def wait(self: ComparisonSession, position: int) -> Any:  # noqa: ANN401
        time.sleep(1.0 if position == 1 else 0.0)
        return prepare(self, position)

    take = SideBySide._take

    def count(self: SideBySide, lane: Any, answer: Any) -> None:  # noqa: ANN401
        take(self, lane, answer)
        most[0] = max(most[0], len(self._answers))

    monkeypatch.setattr(side_by_side, "_AHEAD", 1)
    monkeypatch.setattr(ComparisonSession, "prepare", wait)
    monkeypatch.setattr(SideBySide, "_take", count)
    divided(2)
    assert answer(in_lanes(dumps)) == alone
    assert 1 <= most[0] <= 3


def test_pairs_that_did_not_know_what_bears_on_them_are_done_again(
    dumps: Dumps, divided: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = answer(in_lanes(dumps))
    assert any(outline.judgement.origins for outline in alone["outlines"][2:])
    again: list[int] = []
    look_at = ComparisonSession.look_at

    def note(self: ComparisonSession, position: int) -> None:
        again.append(position)
        look_at(self, position)

    monkeypatch.setattr(ComparisonSession, "look_at", note)
    monkeypatch.setattr(SideBySide, "_holds", lambda self, answer: self._assumed.pop(answer.position) is None)
    divided(3)
    assert answer(in_lanes(dumps)) == alone
    assert len(again) > 1


def test_what_a_lane_that_died_was_at_is_done_here(
    dumps: Dumps, divided: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, here = answer(in_lanes(dumps)), os.getpid()
    measure = FromDumps.measure

    def die(self: FromDumps, position: int, plan: Any) -> Any:  # noqa: ANN401
        if os.getpid() != here and position > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return measure(self, position, plan)

    monkeypatch.setattr(FromDumps, "measure", die)
    divided(2)
    assert answer(in_lanes(dumps)) == alone


def test_a_lane_that_dies_while_it_judges_loses_nothing(
    dumps: Dumps, divided: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, here = answer(in_lanes(dumps)), os.getpid()
    judge = ComparisonSession.judge

    def die(self: ComparisonSession, position: int, prepared: Any) -> Any:  # noqa: ANN401
        if os.getpid() != here and position == 2:
            faulthandler.disable()
            os.kill(os.getpid(), signal.SIGBUS)
        return judge(self, position, prepared)

    monkeypatch.setattr(ComparisonSession, "judge", die)
    divided(3)
    assert answer(in_lanes(dumps)) == alone


def test_what_goes_wrong_in_a_lane_shows_here(
    dumps: Dumps, divided: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: FromDumps, position: int, __: object) -> None:
        raise ZeroDivisionError(f"position {position}")

    divided(2)
    first, measure = ComparisonSession.run, FromDumps.measure

    def fail_later(self: ComparisonSession, positions: range) -> None:
        monkeypatch.setattr(FromDumps, "measure", measure)
        first(self, positions)
        monkeypatch.setattr(FromDumps, "measure", fail)

    monkeypatch.setattr(ComparisonSession, "run", fail_later)
    with pytest.raises(ZeroDivisionError, match="position 1"):
        in_lanes(dumps)


@pytest.mark.parametrize("damaged", [[2], [1, 3], [0, 1, 2, 3]])
def test_damaged_slices_are_told_as_when_they_are_read_here(
    steps: Dumps, divided: Callable[[int], None], damaged: list[int]
) -> None:
    for step in damaged:
        (file,) = steps[1].glob(f"step{step}/rank0/dump.json")
        file.write_text("{", "utf-8")
    alone = what_comes_of(steps)
    divided(2)
    assert what_comes_of(steps) == alone


def test_where_no_process_can_be_started_all_is_done_here(
    dumps: Dumps, divided: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise BlockingIOError

    alone = answer(in_lanes(dumps))
    divided(2)
    monkeypatch.setattr(lanes.os, "fork", refuse)
    assert answer(in_lanes(dumps)) == alone


def test_lanes_end_with_the_comparison(dumps: Dumps, divided: Callable[[int], None]) -> None:
    before = psutil.Process().children()
    divided(3)
    in_lanes(dumps)
    assert psutil.Process().children() == before


def test_many_results_lie_in_a_file_and_are_read_when_they_are_asked_for(
    dumps: Dumps, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = in_lanes(dumps)
    monkeypatch.setattr(slice_results, "_MOST_HELD", 1)
    filed = compare_dumps(dumps, Options())
    assert answer(filed) == answer(held)
    assert list(filed.slices[1:3]) == list(held.slices[1:3])
    assert filed.slices[-1] == held.slices[-1]
    with pytest.raises(IndexError):
        filed.slices[len(held.slices)]
    name = held.slices[2].plan.matches[5].target
    edits = [unmatch((), name)]
    assert preview(filed, edits) == preview(held, edits)


def test_without_details_all_is_said_but_for_rows_and_pairs(
    dumps: Dumps, divided: Callable[[int], None]
) -> None:
    whole = answer(in_lanes(dumps))
    for processes in (1, 2):
        divided(processes)
        brief = in_lanes(dumps, details=False)
        assert len(brief.slices) == len(whole["slices"])
        said = {name: getattr(brief, name) for name in brief.__struct_fields__}
        changed = {"seconds": None, "slices": whole["slices"], "lines": whole["lines"]}
        assert said | changed == whole
        with pytest.raises(LookupError, match="nobody would ask"):
            brief.slices[0]


def test_a_full_disk_is_told(dumps: Dumps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_results, "_MOST_HELD", 1)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "r+b", 0))  # noqa: SIM115, PTH123
    with pytest.raises(LimitError, match=r"space.*TMPDIR"):
        in_lanes(dumps)
