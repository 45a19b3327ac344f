"""What is promised of the results of match sets, made by a real worker from real dumps."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from databases import new_postgresql_database
from sqlalchemy import Engine, delete
from working import ask_to_compare, unseen, wait_for_comparison, worker

from firstdrift.catalogue.comparisons import tree
from firstdrift.catalogue.comparisons.records import Comparison, get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.matches import match_preview as editing
from firstdrift.catalogue.matches.match_sets import (
    MatchSet,
    add_edits,
    create_match_set,
    get_match_set,
    options_of,
    undo,
)
from firstdrift.catalogue.tables import JobState, SlicePairEntry
from firstdrift.comparison.compare import compare
from firstdrift.comparison.rematch import Effect
from firstdrift.comparison.report import Options, Report
from firstdrift.matching.manual.edits import Edit, match, unmatch
from firstdrift.matching.plan import MatchingRules
from firstdrift.wording.message import Message
from firstdrift_worker import measuring, storage

BY_NAME = Options(matching=MatchingRules(structure=False))
MLP, FEED_FORWARD = (
    f"Module.model.layers.{{}}.{name}.LlamaMLP.forward.0" for name in ("mlp", "feed_forward")
)
RENAMED = [match(MLP.format(at), FEED_FORWARD.format(at)) for at in (1, 3)]


BOTH_KINDS = pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def database(request: pytest.FixtureRequest) -> str:
    """Return the address of a new database: of SQLite, where a test does not ask for both kinds."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return str(request.getfixturevalue("sqlite_url"))
    return new_postgresql_database(request.getfixturevalue("postgresql"))


@pytest.fixture
def address(database: str) -> str:
    return database


def begin(engine: Engine, golden: Path, target: Path, options: Options = BY_NAME) -> MatchSet:
    """Compare two dumps, and begin a match set over that."""
    comparison = ask_to_compare(engine, golden, target, options)
    assert wait_for_comparison(engine, comparison).state is JobState.DONE
    with writing(engine) as session:
        return get_match_set(session, create_match_set(session, comparison, "mine"))


def edit(engine: Engine, known: MatchSet, *edits: Edit) -> tuple[MatchSet, Comparison]:
    with writing(engine) as session:
        changed = add_edits(session, known.id, known.version, edits)
    return changed, wait_for_comparison(engine, changed.results() or 0)


def previewed(engine: Engine, known: MatchSet, *edits: Edit) -> Effect:
    with reading(engine) as session:
        state = editing.state_of(session, known)
        options = options_of(state.base.options, known)
        return editing.effect(
            session, state, edits, lambda pair: editing.load_bench(session, pair, options), seconds=60
        )


def everything(engine: Engine, comparison_id: int) -> str:
    """Give all that is said of a comparison, as text."""
    with reading(engine) as session:
        comparison = get_comparison(session, comparison_id)
        said: list[object] = [comparison.findings, comparison.counts, comparison.revision]
        for pair in slice_pairs_of(session, comparison_id):
            said += [pair.id, pair.judgement, pair.unmatched_golden, pair.unmatched_target, pair.notes]
            said += tree.all_rows(session, pair.id)
            said += tree.all_pairs(session, pair.id)
    return "\n".join(map(repr, said))


def require_same(engine: Engine, results: Comparison, report: Report) -> None:
    assert results.findings == report.findings
    assert results.counts == report.counts
    with reading(engine) as session:
        pairs = slice_pairs_of(session, results.id)
        plans = editing.plans_of(session, results.id)
    for pair, plan, result in zip(pairs, plans, report.slices, strict=True):
        assert pair.judgement.counts == result.judgement.counts
        assert pair.notes == result.plan.notes
        assert [one for one in plan.matches if one.golden and one.target] == list(result.plan.matches)
        assert set(plan.unmatched_golden) == set(result.plan.unmatched_golden)
        assert len(plan.pairs) == len(result.plan.pairs)


@BOTH_KINDS
def test_two_matches_by_hand_change_what_was_previewed_and_undo_restores_exactly(
    engine: Engine, database: str, unpacked: Callable[[str], Path]
) -> None:
    golden, target = (unpacked("msprobe/d4_renamed") / side for side in ("golden", "target"))
    with worker(database):
        known = begin(engine, golden, target)
        before = everything(engine, known.comparison_id)
        effect = previewed(engine, known, *RENAMED)
        known, results = edit(engine, known, *RENAMED)
        assert (effect.before.unmatched_golden_nodes, effect.after.unmatched_golden_nodes) == (46, 0)
        assert len(effect.added) == 46
        assert (effect.after, unseen(effect.findings_after)) == (results.counts, unseen(results.findings))
        require_same(
            engine,
            results,
            compare(golden, target, options_of(BY_NAME, known)),
        )
        after = everything(engine, results.id)
        with writing(engine) as session:
            undone = undo(session, known.id, 1)
        assert undone.results() == known.comparison_id
        assert everything(engine, known.comparison_id) == before
        assert everything(engine, results.id) == after


def test_edits_on_edits_are_previewed_on_top_of_them(
    engine: Engine, database: str, unpacked: Callable[[str], Path]
) -> None:
    folder = unpacked("msprobe/d4_renamed")
    with worker(database):
        known, first = edit(engine, begin(engine, folder / "golden", folder / "target"), RENAMED[0])
        wrong = match(MLP.format(0), FEED_FORWARD.format(1))
        effect = previewed(engine, known, wrong)
        assert effect.before == first.counts
        assert effect.removed
        assert {one.target for one in effect.added} >= {(FEED_FORWARD.format(1),)}
        _, second = edit(engine, known, wrong)
        assert (effect.after, unseen(effect.findings_after)) == (second.counts, unseen(second.findings))


def test_only_what_is_new_is_measured(
    engine: Engine,
    database: str,
    unpacked: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = unpacked("msprobe/llama_tensor_mix_perturb")
    name = "Module.model.layers.1.mlp.LlamaMLP.forward.0"
    other = "Module.model.layers.2.mlp.LlamaMLP.forward.0"
    measured: list[int] = []
    really = measuring.measure_pairs
    monkeypatch.setattr(
        measuring, "measure_pairs", lambda plan, *at: measured.append(len(plan.pairs)) or really(plan, *at)
    )
    with worker(database):
        known = begin(engine, folder / "golden", folder / "target", Options())
        measured.clear()
        known, _ = edit(engine, known, unmatch(name))
        assert measured == []
        effect = previewed(engine, known, match(name, other))
        assert 0 < effect.new_pairs < 100
        assert effect.unmeasured == 0
        known, results = edit(engine, known, match(name, other))
        assert sum(measured) == effect.new_pairs
        assert (effect.after, unseen(effect.findings_after)) == (results.counts, unseen(results.findings))
        measured.clear()
        edit(engine, known, match(name, name))
        assert measured == []


def test_a_preview_leaves_out_what_is_too_much_to_read_and_says_so(
    engine: Engine, database: str, unpacked: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = unpacked("msprobe/llama_tensor_mix_perturb")
    edits = [match(*(f"Module.model.layers.{at}.mlp.LlamaMLP.forward.0" for at in (1, 2)))]
    with worker(database):
        known = begin(engine, folder / "golden", folder / "target", Options())
    monkeypatch.setattr(editing, "PREVIEW_BYTES", 5000)
    effect = previewed(engine, known, *edits)
    assert 0 < effect.unmeasured <= effect.new_pairs
    assert effect.after.incomparable >= effect.unmeasured


@pytest.fixture
def steps(unpacked: Callable[[str], Path], tmp_path: Path) -> tuple[Path, Path]:
    """Three steps, of which the last runs a module that is called otherwise."""
    for side in (unpacked("msprobe/llama_stat_L0_perturb") / side for side in ("golden", "target")):
        for step in range(3):
            shutil.copytree(side / "step0", tmp_path / side.name / f"step{step}")
        for file in (tmp_path / side.name / "step2").rglob("*.json"):
            file.write_text(file.read_text().replace(".layers.1.mlp.", ".layers.1.another."))
    return tmp_path / "golden", tmp_path / "target"


@BOTH_KINDS
def test_slices_that_lack_the_nodes_are_taken_over_and_neither_matched_nor_judged(
    engine: Engine, database: str, steps: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[object] = []
    really = storage.plan_slice
    monkeypatch.setattr(storage, "plan_slice", lambda *both: planned.append(both) or really(*both))
    apart = unmatch("Module.model.layers.1.another.LlamaMLP.forward.0")
    with worker(database):
        known = begin(engine, *steps)
        before = everything(engine, known.comparison_id)
        planned.clear()
        effect = previewed(engine, known, apart)
        known, results = edit(engine, known, apart)
    assert len(planned) == 1
    assert (effect.slices, effect.of_slices) == (3, 3)
    assert (effect.after, unseen(effect.findings_after)) == (results.counts, unseen(results.findings))
    require_same(engine, results, compare(*steps, options_of(BY_NAME, known)))
    assert everything(engine, known.comparison_id) == before
    with reading(engine) as session:
        bases, copies = slice_pairs_of(session, known.comparison_id), slice_pairs_of(session, results.id)
        for base, copy in zip(bases[:2], copies[:2], strict=True):
            assert copy.id != base.id
            assert repr(list(tree.all_rows(session, copy.id))) == repr(list(tree.all_rows(session, base.id)))
            assert repr(list(tree.all_pairs(session, copy.id))) == repr(
                list(tree.all_pairs(session, base.id))
            )
    why = copies[0].notes[-1].arguments["why"]
    assert isinstance(why, Message)
    assert why.id == "matching.edit.no_node"
    assert copies[2].notes == bases[2].notes


def test_slices_that_are_being_made_again_are_matched_and_judged_instead(
    engine: Engine, database: str, steps: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = storage.unchanged_slice

    def then_removed(*asked: object) -> tuple[int, tuple[str, ...]] | None:
        source = found(*asked)  # type: ignore[arg-type]
        if source is not None:
            with writing(engine) as session:
                session.execute(delete(SlicePairEntry).where(SlicePairEntry.id == source[0]))
        return source

    monkeypatch.setattr(storage, "unchanged_slice", then_removed)
    with worker(database):
        known = begin(engine, *steps)
        known, results = edit(engine, known, unmatch("Module.model.layers.1.another.LlamaMLP.forward.0"))
    assert results.state is JobState.DONE, results.job.error
    require_same(engine, results, compare(*steps, options_of(BY_NAME, known)))


def test_an_edit_is_checked_against_the_slices_that_have_its_nodes(
    engine: Engine, database: str, steps: tuple[Path, Path]
) -> None:
    another = "Module.model.layers.1.another.LlamaMLP.forward.0"
    with worker(database):
        known = begin(engine, *steps)
    with reading(engine) as session:
        state = editing.state_of(session, known)

        def bench_of(pair: editing.SlicePair) -> editing.Bench:
            return editing.load_bench(session, pair, BY_NAME)

        editing.check_edits(session, state, [match(another, another)], bench_of)
        mlp = another.replace("another", "mlp")
        for edit_of_both, why in (
            (match(another, mlp), "no_node"),
            (match("nothing", "at all"), "no_slice"),
            (match(mlp, mlp.replace("forward", "backward")), "other_pass"),
        ):
            with pytest.raises(editing.SettingsError) as refused:
                editing.check_edits(session, state, [edit_of_both], bench_of)
            said = refused.value.message.arguments["why"]
            assert isinstance(said, Message)
            assert said.id == f"matching.edit.{why}"
