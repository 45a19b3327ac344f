"""Moved thresholds and baselines: a worker finds what a preview says, and nothing is measured for it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from messages import ids_of, like
from msgspec.structs import replace
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session
from working import ask_to_compare, compare_with_worker, unseen, wait_for_comparison, worker

from firstdrift.catalogue.comparisons import rule_preview as judging_module
from firstdrift.catalogue.comparisons.baselines import require_baseline
from firstdrift.catalogue.comparisons.kept import pack_rest
from firstdrift.catalogue.comparisons.planned import load_planned
from firstdrift.catalogue.comparisons.records import (
    Comparison,
    Judging,
    compare_again,
    get_comparison,
    judging_of,
)
from firstdrift.catalogue.comparisons.rule_preview import Trial, as_it_is, load_measured, try_rules
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair, slice_pairs_of
from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.matches import match_preview as editing
from firstdrift.catalogue.matches.match_preview import Bench
from firstdrift.catalogue.matches.match_sets import add_edits, create_match_set, get_match_set, judge_again
from firstdrift.catalogue.tables import JobState
from firstdrift.comparison.compare import compare
from firstdrift.comparison.report import Options
from firstdrift.errors import SettingsError
from firstdrift.matching.manual.edits import unmatch
from firstdrift.matching.plan import SlicePlan
from firstdrift.model.slice import Coordinates, SliceListing
from firstdrift.verdict.movable_thresholds import Thresholds

SENSITIVE = Thresholds(factor=1.0, floor=0.1)


@pytest.fixture
def logits(unpacked: Callable[[str], Path]) -> tuple[Path, Path]:
    """Dumps that are compared in no time."""
    return unpacked("msit/llama4_logits_golden"), unpacked("msit/llama4_logits_bf16")


@pytest.fixture
def dumps(unpacked: Callable[[str], Path]) -> tuple[Path, Path]:
    return unpacked("msit/llama4_golden_fp32"), unpacked("msit/llama4_bf16")


def trial(session: Session, comparison: Comparison, judging: Judging, *, seconds: float = 60.0) -> Trial:
    pairs = slice_pairs_of(session, comparison.id)
    return try_rules(
        session,
        comparison,
        pairs,
        judging,
        lambda pair: load_measured(session, pair, comparison.options),
        seconds=seconds,
    )


def measurements(engine: Engine) -> list[tuple[int, bytes]]:
    with reading(engine) as session:
        return [
            tuple(row)
            for row in session.execute(text("SELECT id, content FROM measurement_blocks ORDER BY id"))
        ]


def judge_by(engine: Engine, url: str, comparison_id: int, judging: Judging) -> Comparison:
    with writing(engine) as session:
        judge_again(session, comparison_id, judging)
    with worker(url):
        return wait_for_comparison(engine, comparison_id)


def test_a_preview_is_what_applying_finds_and_neither_measures(
    engine: Engine, sqlite_url: str, dumps: tuple[Path, Path]
) -> None:
    first = compare_with_worker(sqlite_url, *dumps)
    before = measurements(engine)
    for judging in (
        Judging("firstdrift", SENSITIVE),
        Judging("msit", Thresholds(msit_cosine=0.9999, msit_kl=1e-6)),
        Judging("bitwise"),
        Judging("msprobe", Thresholds(msprobe_share_out=0.5)),
    ):
        with reading(engine) as session:
            seen = trial(session, get_comparison(session, first.id), judging)
        assert (seen.slices, seen.of_slices, seen.missing) == (8, 8, 0)
        applied = judge_by(engine, sqlite_url, first.id, judging)
        assert applied.state is JobState.DONE
        assert judging_of(applied.options) == judging
        assert applied.counts == seen.after.counts
        assert unseen(applied.findings) == unseen(seen.findings_after)
        assert applied.counts != first.counts
        with reading(engine) as session:
            now = as_it_is(session, applied, slice_pairs_of(session, applied.id)).after
        assert (now.classes, now.verdicts) == (seen.after.classes, seen.after.verdicts)
        assert now.rules == seen.after.rules
    report = compare(*dumps, Options(rules=judging.rules, thresholds=judging.thresholds))
    assert (report.counts, report.findings) == (applied.counts, applied.findings)

    reset = judge_by(engine, sqlite_url, first.id, Judging("firstdrift"))
    assert (reset.counts, reset.findings, reset.options) == (first.counts, first.findings, first.options)
    assert measurements(engine) == before


@pytest.mark.parametrize(
    ("golden", "target"),
    [
        ("msit/llama4_golden_fp32", "msit/llama4_fp16"),
        ("msit/llama4_golden_fp32", "msit/atb4_bf16"),
        ("msprobe/llama_stat_mix_nan/golden", "msprobe/llama_stat_mix_nan/target"),
        ("msprobe/llama_md5_mix_perturb/golden", "msprobe/llama_md5_mix_perturb/target"),
        ("msprobe/mixtral_stat_mix_perturb/golden", "msprobe/mixtral_stat_mix_perturb/target"),
        ("msprobe/tp2_vs_tp1/golden", "msprobe/tp2_vs_tp1/target"),
    ],
)
def test_what_a_worker_kept_is_judged_as_what_is_matched_anew_and_as_the_library_judges(
    golden: str, target: str, engine: Engine, sqlite_url: str, unpacked: Callable[[str], Path]
) -> None:
    dumps = _dump(unpacked, golden), _dump(unpacked, target)
    first = compare_with_worker(sqlite_url, *dumps)
    trials: list[list[Trial]] = []
    judgings = [
        Judging("firstdrift", SENSITIVE),
        Judging("msit", Thresholds(msit_cosine=0.9999)),
        Judging("bitwise"),
        Judging("msprobe", Thresholds(msprobe_share_out=0.5)),
    ]
    for is_kept in (True, False):
        if not is_kept:
            with writing(engine) as session:
                session.execute(text("DELETE FROM plans"))
        with reading(engine) as session:
            for pair in slice_pairs_of(session, first.id):
                assert (load_planned(session, pair) is not None) is is_kept
            trials.append([trial(session, first, judging) for judging in judgings])
    assert repr(trials[0]) == repr(trials[1])  # NaN differs from itself
    for judging, seen in zip(judgings, trials[0], strict=True):
        report = compare(*dumps, Options(rules=judging.rules, thresholds=judging.thresholds))
        assert (seen.after.counts, seen.missing) == (report.counts, 0)
        assert repr(unseen(seen.findings_after)) == repr(unseen(report.findings))


def _dump(unpacked: Callable[[str], Path], name: str) -> Path:
    archive = "/".join(name.split("/")[:2])
    return unpacked(archive).joinpath(*name.split("/")[2:])


def test_nothing_is_matched_anew_for_what_this_version_has_judged(
    engine: Engine, sqlite_url: str, logits: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compare_with_worker(sqlite_url, *logits)
    matched: list[int] = []

    def load_bench(session: Session, pair: SlicePair, options: Options) -> Bench:
        matched.append(pair.position)
        return editing.load_bench(session, pair, options)

    monkeypatch.setattr(judging_module, "load_bench", load_bench)
    with reading(engine) as session:
        seen = trial(session, first, Judging("firstdrift", SENSITIVE))
    assert matched == []
    for spoiled in ("content = X'00'", "version = 'another'"):
        with writing(engine) as session:
            session.execute(text(f"UPDATE plans SET {spoiled}"))  # noqa: S608 (ours)
        matched.clear()
        with reading(engine) as session:
            assert repr(trial(session, first, Judging("firstdrift", SENSITIVE))) == repr(seen)
        assert len(matched) == seen.of_slices


def test_a_plan_with_names_that_no_encoding_has_is_not_kept() -> None:
    plan = SlicePlan(
        SliceListing(Coordinates(0), Path()), SliceListing(Coordinates(0), Path()), (), (), (), ()
    )
    assert pack_rest(plan) is not None
    assert pack_rest(replace(plan, unmatched_golden=("\ud800",))) is None


def test_the_name_of_a_rule_set_leaves_thresholds_as_they_are(
    engine: Engine, dumps: tuple[Path, Path]
) -> None:
    comparison_id = ask_to_compare(engine, *dumps, Options(thresholds=SENSITIVE))
    with writing(engine) as session:
        compare_again(session, comparison_id, "msit")
    with reading(engine) as session:
        assert judging_of(get_comparison(session, comparison_id).options) == Judging("msit", SENSITIVE)


def test_a_healthy_run_excuses_its_own_noise(
    engine: Engine, sqlite_url: str, dumps: tuple[Path, Path], unpacked: Callable[[str], Path]
) -> None:
    golden, healthy = dumps
    baseline = compare_with_worker(sqlite_url, golden, healthy)
    first = compare_with_worker(
        sqlite_url, golden, unpacked("msit/llama4_fp16"), Options(thresholds=SENSITIVE)
    )
    assert first.findings is not None
    assert first.findings.first_bad_node is not None
    judging = Judging("firstdrift", SENSITIVE, baseline.id)
    with reading(engine) as session:
        require_baseline(session, first, baseline.id)
        seen = trial(session, first, judging)
    assert seen.findings_after.first_bad_node is None
    applied = judge_by(engine, sqlite_url, first.id, judging)
    assert applied.counts == seen.after.counts
    assert unseen(applied.findings) == unseen(seen.findings_after)
    report = compare(golden, unpacked("msit/llama4_fp16"), Options(thresholds=SENSITIVE), baseline=healthy)
    assert (report.counts, report.findings) == (applied.counts, applied.findings)


def test_only_what_a_worker_can_judge_by_is_a_baseline(
    engine: Engine, sqlite_url: str, logits: tuple[Path, Path], unpacked: Callable[[str], Path]
) -> None:
    first = compare_with_worker(sqlite_url, *logits)
    steps = unpacked("msprobe/llama_stat_mix_perturb")
    other = compare_with_worker(sqlite_url, steps / "golden", steps / "target")
    waiting = ask_to_compare(engine, *logits)
    for baseline, said in (
        (first.id, like("catalogue.baseline.itself")),
        (other.id, like("catalogue.baseline.other_slices")),
        (waiting, like("catalogue.baseline.not_finished")),
        (99, like("catalogue.baseline.gone")),
    ):
        with reading(engine) as session, pytest.raises(SettingsError, match=said):
            require_baseline(session, first, baseline)
    failed = judge_by(engine, sqlite_url, first.id, Judging("firstdrift", baseline=99))
    assert failed.state is JobState.FAILED
    assert "catalogue.baseline.gone" in ids_of(failed.job.error)
    asked = ask_to_compare(engine, *logits, Options(baseline=other.id))
    with worker(sqlite_url):
        refused = wait_for_comparison(engine, asked)
    assert refused.state is JobState.FAILED
    assert "comparison.options.baseline_elsewhere" in ids_of(refused.job.error)


def test_a_baseline_that_is_asked_for_from_the_beginning_excuses_as_on_the_command_line(
    sqlite_url: str, dumps: tuple[Path, Path], unpacked: Callable[[str], Path]
) -> None:
    golden, healthy = dumps
    target = unpacked("msit/llama4_fp16")
    baseline = compare_with_worker(sqlite_url, golden, healthy).id
    asked = Options(thresholds=SENSITIVE, baseline=baseline)
    found = compare_with_worker(sqlite_url, golden, target, asked)
    report = compare(golden, target, Options(thresholds=SENSITIVE), baseline=healthy)
    assert (found.counts, found.findings) == (report.counts, report.findings)
    assert report.findings.first_bad_node is None


def test_a_trial_stops_when_its_time_is_over_and_says_so(
    engine: Engine, sqlite_url: str, logits: tuple[Path, Path]
) -> None:
    first = compare_with_worker(sqlite_url, *logits)
    with reading(engine) as session:
        seen = trial(session, first, Judging("firstdrift", SENSITIVE), seconds=0.0)
        known = slice_pairs_of(session, first.id)
    assert len(known) > 1
    assert (seen.slices, seen.of_slices) == (1, len(known))
    assert seen.before.counts == known[0].judgement.counts
    assert seen.of_slice == (seen.before, seen.after)


def test_match_sets_follow(engine: Engine, sqlite_url: str, dumps: tuple[Path, Path]) -> None:
    first = compare_with_worker(sqlite_url, *dumps)
    with writing(engine) as session:
        made = create_match_set(session, first.id, "mine")
        known = add_edits(session, made, 0, (unmatch("root.lm_head"),))
    results = known.results() or 0
    with worker(sqlite_url):
        wait_for_comparison(engine, results)
    judge_by(engine, sqlite_url, first.id, Judging("firstdrift", SENSITIVE))
    with worker(sqlite_url):
        after = wait_for_comparison(engine, get_match_set_results(engine, made))
    assert after.options.thresholds == SENSITIVE
    with reading(engine) as session:
        limits = {pair.judgement.limits for pair in slice_pairs_of(session, results)}
    assert limits == {SENSITIVE}
    with reading(engine) as session:
        kept = [load_planned(session, pair) for pair in slice_pairs_of(session, results)]
    assert kept
    assert None not in kept


def get_match_set_results(engine: Engine, match_set: int) -> int:
    with reading(engine) as session:
        return get_match_set(session, match_set).results() or 0
