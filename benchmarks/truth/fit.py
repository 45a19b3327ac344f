"""Choose thresholds on two folds of architectures, and score them on the third, in turn.

    .venv/bin/python benchmarks/truth/fit.py FOLDER [--jobs 2] [--axes factor floors] [--looked-at FILE]

Each pair of the folder, as `score.py` reads it, is measured once and judged by every setting of a grid: the
thresholds of each axis times 0.5 to 2. Of the settings that which answers two folds best is scored on the
fold that is left out; best is where the share of healthy pairs with a finding and that of faults that are
missed add up to least. Prints a table in Markdown.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fitting import AXES, Judged, fitted_table, moved, settings_of
from score import Chosen, Pair, answer_of, for_each, names_in, pairs_of
from scoring import score

if TYPE_CHECKING:
    from firstdrift import Report
    from firstdrift.comparison.clock import Clock
    from firstdrift.comparison.report import SliceResult
    from firstdrift.comparison.session import Planned
    from firstdrift.matching.plan import Messages, SlicePlan, TensorPair
    from firstdrift.metrics.measurement import Measurement
    from firstdrift.model.slice import Coordinates
    from firstdrift.verdict.baseline import Noise
    from firstdrift.verdict.judgement import Finding, SliceJudgement
    from firstdrift.verdict.movable_thresholds import Thresholds


class Measured:
    """The storage of a session (`firstdrift.comparison.session.Storage`) of which all was measured before."""

    def __init__(self, report: "Report") -> None:
        """Begin with what a report knows."""
        self.before = report.slices

    def kept(self, position: int) -> "SliceJudgement | None":
        """Return nothing: all is judged anew."""
        del position
        return None

    def planned(self, position: int, clock: "Clock") -> "Planned":
        """Return what was planned."""
        from firstdrift.comparison.session import Planned

        del clock
        return Planned(self.before[position].plan, self.before[position].rows)

    def measured(self, position: int, plan: "SlicePlan") -> "Sequence[Measurement]":
        """Return what was measured."""
        del plan
        return self.before[position].measurements

    def noise(self, golden: "Coordinates") -> "Noise":
        """Return that no healthy run is known."""
        from firstdrift.verdict.baseline import QUIET

        del golden
        return QUIET

    def shown(self, position: int, pair: "TensorPair", measured: "Measurement") -> "Messages":
        """Look at nothing from near."""
        del position, pair, measured
        return ()

    def keep(self, position: int, result: "SliceResult", clock: "Clock") -> None:
        """Keep nothing: findings and counts are enough for an answer."""

    def settle(self, position: int, bad: "Finding") -> None:
        """Keep nothing."""


def judged_again(report: "Report", limits: "Thresholds") -> "Report":
    """Judge a report by other thresholds: its findings and counts. Nothing is read, matched or measured."""
    from msgspec.structs import replace

    from firstdrift.comparison.session import ComparisonSession

    session = ComparisonSession(Measured(report), report.options.rules, limits)
    session.run(range(len(report.slices)))
    findings = session.conclude(len(report.pairing.unmatched_golden))
    options = replace(report.options, thresholds=limits)
    return replace(report, options=options, findings=findings, counts=session.counts())


def judged(axes: Sequence[str], pair: Pair) -> Judged:
    """Measure a pair, and judge it by each setting; an answer that cannot be made is a wrong one."""
    from firstdrift import compare
    from firstdrift.verdict.movable_thresholds import DEFAULTS, Thresholds

    truth, settings = pair["truth"], settings_of(axes)
    shipped = {name: getattr(DEFAULTS, name) for names in AXES.values() for name in names}
    try:
        report = compare(Path(pair["folder"]) / "golden", Path(pair["folder"]) / "target")
        limits = [Thresholds(**moved(setting, axes, shipped)) for setting in settings]
        right = tuple(score(truth, answer_of(judged_again(report, one))).found for one in limits)
    except Exception as error:  # noqa: BLE001 (a crash is a wrong answer)
        print(f"{pair['name']}: {type(error).__name__}: {error}"[:300], file=sys.stderr)
        right = (False,) * len(settings)
    return Judged(pair["fold"], truth["healthy"], right)


def main() -> int:
    """Fit what the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--axes", nargs="+", choices=AXES, default=["factor", "floors"])
    parser.add_argument("--looked-at", type=Path, metavar="FILE", help="architectures that are left out")
    parser.add_argument("--expected", type=Path, help="a file with the truths of pairs that have none")
    options = parser.parse_args()
    kept = Chosen(looked_at=names_in(options.looked_at))
    pairs = [pair for pair in pairs_of(options.folder, options.expected) if kept.has(pair)]
    start = time.monotonic()
    found = for_each(partial(judged, options.axes), pairs, options.jobs)
    seconds = time.monotonic() - start
    print(f"{len(found)} pairs, {len(settings_of(options.axes))} settings, {seconds:.0f} s\n")
    print(fitted_table(found, options.axes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
