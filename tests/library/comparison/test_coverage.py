"""Two runs are said to agree only where enough of them was compared, whatever was done to a dump."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from library.comparison.changed_dumps import Change, change_dump
from messages import gaps_of, ids_of, titled
from msgspec.structs import replace

from firstdrift import Options, Report, compare
from firstdrift.catalogue.codec import from_text, to_text
from firstdrift.comparison.exit_status import exit_status
from firstdrift.comparison.suggested_matches import suggested_matches
from firstdrift.exports.match_set_json import write_suggested_matches
from firstdrift.exports.summary import summary_of
from firstdrift.exports.text import report_text
from firstdrift.matching.manual.match_set_file import read_matches
from firstdrift.matching.plan import MatchingRules
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.coverage import Coverage
from firstdrift.verdict.judgement import Counts, Findings, InputDifference, Remedy, SliceJudgement, Verdict
from firstdrift.verdict.not_judged import with_coverage
from firstdrift.wording.message import Message

Compared = Callable[..., Report]
Unpacked = Callable[[str], Path]


@pytest.mark.parametrize(
    ("golden", "target", "covered", "remedy"),
    [
        pytest.param("msit/llama4_golden_fp32", "msit/llama4_bf16", (448, 448, 8, 8), None, id="whole"),
        pytest.param("msit/llama4_logits_golden", "msit/llama4_bf16", (8, 8, 8, 8), None, id="golden-logits"),
        pytest.param(
            "msit/llama4_stats1_golden",
            "msit/llama4_logits_golden",
            (168, 3, 3, 3),
            Remedy.LEVEL,
            id="target-logits",
        ),
        pytest.param(
            "msit/llama4_golden_fp32", "msit/llama4_weights", (56, 13, 1, 0), Remedy.DUMP, id="target-weights"
        ),
        pytest.param(
            "msit/llama4_golden_fp32", "msit/llama4_filter", (112, 40, 2, 0), Remedy.DUMP, id="some-modules"
        ),
        pytest.param(
            "msit/llama4_weights", "msit/llama4_golden_fp32", (13, 13, 1, 1), None, id="golden-weights"
        ),
    ],
)
def test_what_was_compared_is_counted_and_decides(
    compared: Compared, golden: str, target: str, covered: tuple[int, ...], remedy: Remedy | None
) -> None:
    report = compared(golden, target)
    coverage, found = report.findings.coverage, report.findings.not_judged
    assert coverage is not None
    counted = coverage.nodes, coverage.compared_nodes, coverage.outputs, coverage.compared_outputs
    assert counted == covered
    assert (found.remedy if found else None) == remedy
    assert exit_status(report) == (0 if remedy is None else 2)
    assert (report.findings.summary.id == "summary.not_judged") == (remedy is not None)
    assert (summary_of(report).tone is Verdict.INCOMPARABLE) == (remedy is not None)


def test_logits_alone_agree_where_they_alone_are_asked_for(unpacked: Unpacked) -> None:
    alone = unpacked("msit/llama4_logits_golden"), unpacked("msit/llama4_bf16")
    assert exit_status(compare(*alone, Options(level="logits"))) == 0
    dumps = unpacked("msit/llama4_stats1_golden"), unpacked("msit/llama4_logits_golden")
    asked = compare(*dumps, Options(level="logits"))
    coverage = asked.findings.coverage
    assert coverage is not None
    alone = replace(coverage, unmatched_golden=0, unmatched_target=0, unmatched_beside=0)
    assert alone == Coverage(nodes=3, compared_nodes=3, outputs=3, compared_outputs=3, target_nodes=3)
    assert exit_status(asked) == 0
    assert f"\n{titled('coverage').strip()}" in report_text(asked)


def test_unmatched_nodes_are_said_beside_what_was_compared(unpacked: Unpacked) -> None:
    """No "246 of 246" where nodes have no match: all golden ones count, and those of both sides are told."""
    there = Coverage(nodes=246, compared_nodes=246, outputs=1, compared_outputs=1)
    assert ids_of(there.said) == ("coverage.with_outputs", "coverage.nodes")
    left = replace(there, unmatched_golden=16, unmatched_target=2, unmatched_beside=16)
    assert (left.said.arguments["golden"], left.said.arguments["target"]) == (16, 2)
    assert gaps_of(left.said, "coverage.nodes") == {"nodes": 262, "compared": 246}
    dump = unpacked("msprobe/d4_renamed")
    report = compare(dump / "golden", dump / "target")
    coverage, counts = report.findings.coverage, report.counts
    assert coverage is not None
    said = coverage.unmatched_golden, coverage.unmatched_target
    assert said == (counts.unmatched_golden_nodes, counts.unmatched_target_nodes)
    assert sum(said) > 0


@pytest.mark.parametrize("level", ["layer", "module", "api"])
def test_a_level_is_held_against_what_there_is_of_it(unpacked: Unpacked, level: str) -> None:
    dump = unpacked("msprobe/llama_stat_mix_identical")
    report = compare(dump / "golden", dump / "target", Options(level=level))
    coverage = report.findings.coverage
    assert coverage is not None
    assert coverage.nodes == coverage.compared_nodes > 0
    assert (coverage.has_outputs, exit_status(report)) == (True, 0)


def test_a_module_tells_nothing_of_those_that_were_left_out_of_one_dump(
    unpacked: Unpacked, tmp_path: Path
) -> None:
    """The same code holds the same modules: only other code may do without."""
    golden = unpacked("implementations/llama_gradients") / "golden"
    target = shutil.copytree(golden, tmp_path / "target")
    (file,) = target.rglob("dump.json")
    dumped = json.loads(file.read_text("utf-8"))
    kept = ("Module.model.LlamaModel.forward", "Module.lm_head.Linear.forward")
    dumped["data"] = {name: node for name, node in dumped["data"].items() if name.startswith(kept)}
    file.write_text(json.dumps(dumped), "utf-8")
    found = compare(golden, target).findings
    assert found.not_judged is not None
    assert found.coverage is not None
    assert found.coverage.compared_nodes < found.coverage.nodes / 2


# --- what was judged before --------------------------------------------------------------------------------


def test_results_of_earlier_versions_stay_as_they_are(compared: Compared) -> None:
    report = compared("msit/llama4_golden_fp32", "msit/llama4_weights")
    kept = json.loads(to_text(report.slices[0].judgement))
    del kept["coverage"], kept["given"]
    before: SliceJudgement = from_text(SliceJudgement, json.dumps(kept))
    assert before.coverage is None
    agreed = Findings(report.findings.summary)
    assert with_coverage(agreed, [before]) == agreed


def test_how_much_was_compared_is_kept(compared: Compared) -> None:
    found = compared("msit/llama4_golden_fp32", "msit/llama4_weights").findings
    assert from_text(Findings, to_text(found)) == found


def test_another_input_is_said_before_what_was_not_compared(compared: Compared) -> None:
    judged = compared("msit/llama4_golden_fp32", "msit/llama4_weights").slices[0].judgement
    other = InputDifference(Coordinates(token=7), Message.of("input.earlier_token"))
    said = Message.of("summary.other_inputs", where=other.coordinates.name(), reason=other.reason)
    found = with_coverage(Findings(said, input_differs=(other,)), [judged])
    assert (found.summary, found.not_judged is not None) == (said, True)


def test_no_mapping_helps_where_no_node_is_left_over(compared: Compared) -> None:
    judged = compared("msit/llama4_golden_fp32", "msit/llama4_weights").slices[0].judgement
    counts = Counts(pairs=20, incomparable=1)
    only_the_output = Coverage(nodes=10, compared_nodes=10, outputs=1)
    poor = replace(judged, counts=counts, coverage=only_the_output)
    found = with_coverage(Findings(Message.of("summary.agree")), [poor]).not_judged
    assert found is not None
    assert found.remedy is Remedy.TENSORS


# --- whatever is done to a dump ----------------------------------------------------------------------------

DUMPS = ("llama_stat_L0_perturb", "llama_stat_fwdout", "llama_stat_L0_generate")
OF_OPERATORS = ("llama_stat_L1_perturb", "llama_stat_mix_perturb", "mixtral_stat_mix_perturb", "d4_renamed")
TRIALS = [(dump, seed) for dump in DUMPS for seed in range(6)]


def _changed(unpacked: Unpacked, tmp_path: Path, dump: str, seed: int) -> tuple[Change, Report]:
    dice = random.Random(f"{dump} {seed}")  # noqa: S311 (the same in every run)
    change = Change(
        delete=dice.choice([0.0, 0.05, 0.3, 0.8]),
        rename=dice.choice([0.0, 0.1, 1.0]),
        reorder=dice.choice([0.0, 0.0, 0.1]),
        fault=seed % 2 == 1,
    )
    golden = unpacked(f"msprobe/{dump}") / "golden"
    change_dump(golden, tmp_path / "copy", change, dice)
    return change, compare(golden, tmp_path / "copy")


@pytest.mark.parametrize(("dump", "seed"), TRIALS)
def test_no_fault_is_said_to_agree_and_nothing_that_was_hardly_compared(
    unpacked: Unpacked, tmp_path: Path, dump: str, seed: int
) -> None:
    change, report = _changed(unpacked, tmp_path, dump, seed)
    status = exit_status(report)
    assert status in ((1, 2) if change.fault else (0, 2))
    if status == 0:
        recorded = _recorded(unpacked(f"msprobe/{dump}") / "golden")
        seen = _compared(report) & recorded
        assert any(".lm_head." in name for name in seen)
        assert len(seen) >= len(recorded) / 2


@settings(max_examples=12, deadline=None)
@given(
    dump=some.sampled_from([*DUMPS, *OF_OPERATORS]),
    seed=some.integers(0, 1 << 32),
    delete=some.sampled_from([0.0, 0.05, 0.3]),
    rename=some.sampled_from([0.0, 0.1, 1.0]),
    reorder=some.sampled_from([0.0, 0.1, 0.3]),
)
def test_nothing_is_found_in_a_healthy_copy_whatever_was_done_to_its_nodes(  # noqa: PLR0917 (what is drawn)
    unpacked: Unpacked,
    tmp_path_factory: pytest.TempPathFactory,
    dump: str,
    seed: int,
    delete: float,
    rename: float,
    reorder: float,
) -> None:
    golden, copy = unpacked(f"msprobe/{dump}") / "golden", tmp_path_factory.mktemp("copy") / "copy"
    change_dump(golden, copy, Change(delete, rename, reorder), random.Random(seed))  # noqa: S311 (no secret)
    report = compare(golden, copy)
    assert exit_status(report) in (0, 2), report_text(report)


def _recorded(folder: Path) -> set[str]:
    """Name the nodes of which numbers were recorded, as a dump writes them; modules, where there are any."""
    texts = (file.read_text() for file in folder.rglob("dump.json"))
    nodes = {name: json.dumps(node) for text in texts for name, node in json.loads(text)["data"].items()}
    found = {name for name, node in nodes.items() if '"Norm"' in node}
    return {name for name in found if name.startswith("Module.")} or found


def _compared(report: Report) -> set[str]:
    return {
        name
        for result in report.slices
        for pair, judged in zip(result.plan.pairs, result.judgement.pairs, strict=True)
        if judged.verdict is not Verdict.INCOMPARABLE
        for name in (pair.golden_node, *pair.part_nodes)
    }


def test_a_dump_as_it_was_is_said_to_agree(unpacked: Unpacked, tmp_path: Path) -> None:
    golden = unpacked("msprobe/llama_stat_L0_perturb") / "golden"
    change_dump(golden, tmp_path / "copy", Change(), random.Random(0))  # noqa: S311 (likewise)
    report = compare(golden, tmp_path / "copy")
    assert exit_status(report) == 0
    assert report.findings.coverage is not None
    assert report.findings.coverage.is_enough


# --- what helps --------------------------------------------------------------------------------------------


def test_a_suggested_mapping_covers_what_names_did_not(unpacked: Unpacked, tmp_path: Path) -> None:
    golden = unpacked("msprobe/llama_stat_L0_perturb") / "golden"
    change_dump(golden, tmp_path / "copy", Change(rename=1.0), random.Random(3))  # noqa: S311 (likewise)
    by_name = MatchingRules(structure=False)
    report = compare(golden, tmp_path / "copy", Options(matching=by_name))
    found = report.findings.not_judged
    assert found is not None
    assert (found.remedy, exit_status(report)) == (Remedy.MAPPING, 2)
    assert "--suggest-mapping" in report_text(report)
    write_suggested_matches(report, tmp_path / "matches.json")
    said = read_matches([tmp_path / "matches.json"])
    assert [one.edit for one in suggested_matches(report).matches] == list(said.edits) != []
    after = compare(
        golden, tmp_path / "copy", Options(matching=MatchingRules(structure=False, edits=said.edits))
    )
    before, now = report.findings.coverage, after.findings.coverage
    assert before is not None
    assert now is not None
    assert now.compared_nodes > before.compared_nodes
