"""`firstdrift compare`: what it prints, writes and exits with."""

import csv
import json
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from library.dumps.msprobe_samples import module, tensor, write_dump
from messages import complaint, says, titled, titled_within

from firstdrift.comparison.table import COLUMNS
from firstdrift.model.slice import Coordinates
from firstdrift.wording.message import Message
from firstdrift.wording.plain import message_object
from firstdrift.wording.text import text_of, word

Run = Callable[..., Any]
Unpacked = Callable[[str], Path]


@pytest.fixture(scope="module")
def main_case(unpacked: Unpacked) -> tuple[Path, Path]:
    return unpacked("msit/llama12_golden_fp32"), unpacked("msit/llama12_bf16_bad_L7_T2")


@pytest.fixture(scope="module")
def two_ranks(unpacked: Unpacked) -> tuple[Path, Path]:
    dump = unpacked("msprobe/dp2_stat_mix")
    return dump / "golden", dump / "target"


@pytest.fixture(scope="module")
def other_input(unpacked: Unpacked) -> tuple[Path, Path]:
    dump = unpacked("msprobe/llama_stat_mix_microstep")
    return dump / "golden", dump / "target"


@pytest.mark.parametrize("name", ["msprobe/llama_tensor_mix_perturb", "msprobe/dp2_stat_mix"])
def test_the_answer_is_the_same_with_any_number_of_processes(
    firstdrift: Run, unpacked: Unpacked, name: str
) -> None:
    dump = unpacked(name)
    said = []
    for jobs in ("1", "3"):
        done = firstdrift("compare", "--json", "--jobs", jobs, dump / "golden", dump / "target")
        said.append(json.loads(done.out) | {"seconds": None})
    assert said[0] == said[1]


def test_the_text_says_first_what_matters_first(firstdrift: Run, main_case: tuple[Path, Path]) -> None:
    done = firstdrift("compare", *main_case)
    lines = done.out.splitlines()
    assert says(lines[0], "finding.source")
    assert re.search(r"\b2\b", lines[0])
    assert "model.layers.7.mlp" in lines[0]
    where = text_of(Coordinates(token=2).name())
    token, node = (text_of(Message.of(f"terminal.first_bad_{kind}")) for kind in ("token", "node"))
    assert f"{token}: {where}, lm_head" in lines
    assert f"{node}: {where}, model.layers.7.mlp" in lines
    assert titled_within("class", word("node_class", "source")) in lines
    sizes = {"inputs": "1.48 %", "output": "45.9 %"}
    assert titled_within("because", text_of(Message.of("reason.inputs_agree", **sizes))) in lines
    assert titled("pairs", "1926: 1534 pass, 0 warning, 392 error, 0 incomparable") in lines
    assert titled("unmatched", "golden 0 nodes, 0 tensors; target 0 nodes, 0 tensors") in lines
    assert any(line.startswith(titled("golden", f"{main_case[0]}: msit-torch, 6 slices")) for line in lines)
    assert re.fullmatch(re.escape(titled("time")) + r"\d+\.\d\d s", lines[-1])
    assert (done.status, done.err) == (1, "")


def test_the_text_names_the_rank_and_the_input_that_differs(
    firstdrift: Run, two_ranks: tuple[Path, Path], other_input: tuple[Path, Path]
) -> None:
    ranks = firstdrift("compare", *two_ranks).out.splitlines()
    assert says(ranks[0], "finding.weights")
    assert "model.layers.0.mlp.down_proj" in ranks[0]
    assert text_of(Message.of("rank.began", rank=1)) in ranks
    inputs = firstdrift("compare", *other_input).out.splitlines()
    assert says(inputs[0], "summary.other_inputs")
    where = text_of(Coordinates(0, 0, None, 1).name())
    assert where in inputs[0]
    assert any(
        line.startswith(f"{text_of(Message.of('terminal.input_differs'))}: {where}:") for line in inputs
    )


def test_only_what_a_rank_gives_to_others_is_said_to_be_that(firstdrift: Run, unpacked: Unpacked) -> None:
    dumps = [unpacked(f"msprobe/{name}") for name in ("zoo_tensor_mix", "dp2_md5_mix")]
    flagged, given = (
        json_of(firstdrift, dump / "golden", dump / "target", "--rules", rules)
        for dump, rules in zip(dumps, ("msprobe", "msit"), strict=True)
    )
    said = flagged["summary"]["arguments"]["node"]["arguments"]["what"]["id"]
    assert (flagged["first_bad_node"]["class"], said) == ("propagated", "finding.flagged")
    said = given["summary"]["arguments"]["node"]["arguments"]["what"]["id"]
    assert (given["first_bad_node"]["class"], said) == ("propagated", "finding.first_given")


def test_a_tensor_with_no_number_to_show_has_no_line(firstdrift: Run, unpacked: Unpacked) -> None:
    dump = unpacked("msprobe/llama_stat_mix_3steps")
    lines = firstdrift("compare", dump / "golden", dump / "target").out.splitlines()
    values = {"golden": 0.99999, "target": 0.9999}
    why = text_of(Message.of("reason.argument", name="input.1", **{k: str(v) for k, v in values.items()}))
    assert titled_within("because", why) in lines
    assert not [line for line in lines if line != line.rstrip()]


# --- exit status -------------------------------------------------------------------------------------


def test_nothing_bad_exits_with_0(firstdrift: Run, unpacked: Unpacked) -> None:
    done = firstdrift("compare", unpacked("msit/llama4_golden_fp32"), unpacked("msit/llama4_fp16"))
    assert done.out.startswith(f"{text_of(Message.of('summary.agree'))}\n")
    assert (done.status, done.err) == (0, "")


def test_warnings_fail_only_where_asked(firstdrift: Run, other_input: tuple[Path, Path]) -> None:
    assert firstdrift("compare", *other_input).status == 0
    assert firstdrift("compare", *other_input, "--fail-on", "error").status == 0
    assert firstdrift("compare", *other_input, "--fail-on", "warning").status == 1


def test_different_inputs_from_the_beginning_exit_with_2(
    firstdrift: Run, unpacked: Unpacked, tmp_path: Path
) -> None:
    golden = unpacked("msprobe/llama_stat_mix_identical") / "golden"
    target = tmp_path / "target"
    shutil.copytree(golden, target)
    (file,) = target.rglob("dump.json")
    dump = json.loads(file.read_text(encoding="utf-8"))
    for name, call in dump["data"].items():
        if (
            "embedding" in name.lower()
            and name.split(".")[0] in {"Functional", "Module"}
            and "forward" in name
        ):
            call["input_args"][0].update(Max=call["input_args"][0]["Max"] + 7)
    file.write_text(json.dumps(dump), encoding="utf-8")
    done = firstdrift("compare", golden, target)
    assert says(done.out, "summary.other_inputs")
    assert done.status == 2
    assert firstdrift("compare", golden, target, "--fail-on", "warning").status == 1


def test_errors_fail_whatever_is_asked(firstdrift: Run, two_ranks: tuple[Path, Path]) -> None:
    assert firstdrift("compare", *two_ranks, "--fail-on", "warning").status == 1


@pytest.mark.parametrize("side", [0, 1])
def test_a_path_with_nothing_there_exits_with_2_and_names_it(
    firstdrift: Run, main_case: tuple[Path, Path], side: int, tmp_path: Path
) -> None:
    paths = list(main_case)
    paths[side] = tmp_path / "nowhere"
    done = firstdrift("compare", *paths)
    assert (done.status, done.out) == (2, "")
    assert done.err == complaint("dumps.nothing_here", tmp_path / "nowhere")


def test_a_folder_that_is_no_dump_exits_with_2_and_says_what_was_looked_for(
    firstdrift: Run, main_case: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("nothing of interest")
    done = firstdrift("compare", main_case[0], tmp_path)
    assert (done.status, done.out) == (2, "")
    assert says(done.err, "dumps.none")
    assert f"{tmp_path}: " in done.err


def test_a_dump_that_cannot_be_read_exits_with_2_and_names_the_file(
    firstdrift: Run, unpacked: Unpacked, tmp_path: Path
) -> None:
    broken = write_dump(tmp_path / "step0" / "rank0", {"Torch.add.0.forward": module(tensor())})
    whole = (broken / "dump.json").read_text()
    (broken / "dump.json").write_text(whole[: len(whole) // 2])
    done = firstdrift("compare", unpacked("msprobe/llama_stat_mix_identical") / "golden", tmp_path)
    assert (done.status, done.out) == (2, "")
    assert f"{broken / 'dump.json'}: " in done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--level", "layers"], "'layers' is not one of"),
        (["--fail-on", "nothing"], "'nothing' is not one of"),
        (["--rules", "mine"], text_of(Message.of("error.no_rule_set", name="mine"))),
        (["--step", "first"], "'first' is not a valid integer"),
        (["--colour"], "No such option"),
    ],
)
def test_a_wrong_option_exits_with_2_and_says_what_would_be_right(
    firstdrift: Run, unpacked: Unpacked, options: list[str], said: str
) -> None:
    dump = unpacked("msit/nested")
    done = firstdrift("compare", dump, dump, *options)
    assert (done.status, done.out) == (2, "")
    assert said in done.err


def test_a_healthy_answer_has_no_two_blank_lines(firstdrift: Run, unpacked: Unpacked) -> None:
    dump = unpacked("msit/nested")
    done = firstdrift("compare", dump, dump)
    assert says(done.out.splitlines()[0], "summary.equal_bits")
    assert "\n\n\n" not in done.out


def test_a_forgotten_dump_exits_with_2(firstdrift: Run, unpacked: Unpacked) -> None:
    done = firstdrift("compare", unpacked("msit/nested"))
    assert done.status == 2
    assert "Missing argument 'TARGET'" in done.err


def test_a_token_that_no_dump_has_exits_with_2_and_says_which_there_are(
    firstdrift: Run, main_case: tuple[Path, Path]
) -> None:
    done = firstdrift("compare", *main_case, "--token", "99")
    assert (done.status, done.out) == (2, "")
    assert says(done.err, "matching.choice.in_neither")
    assert "0\u20135" in done.err


def test_nothing_in_common_exits_with_2_and_counts_nothing(firstdrift: Run, unpacked: Unpacked) -> None:
    tokens, steps = unpacked("msit/llama4_logits_golden"), unpacked("msprobe/llama_tensor_L0_bf16")
    done = firstdrift("compare", tokens, steps / "golden")
    assert done.status == 2
    assert says(done.out, "summary.no_slices")
    assert says(done.out, "matching.note.ambiguous")
    assert "0\u20137" in done.out
    assert not says(done.out, "matching.note.untold_by_target", "matching.note.untold_by_golden")
    assert "pairs  " not in done.out
    assert "0 tensors" not in done.out


def test_a_dump_compared_with_itself_is_noted(firstdrift: Run, unpacked: Unpacked) -> None:
    dump = unpacked("msit/nested")
    note = text_of(Message.of("matching.note.same_dump"))
    assert titled("note", f"{note}\n") in firstdrift("compare", dump, dump).out


# --- JSON --------------------------------------------------------------------------------------------

COORDINATES = {"step", "rank", "token", "micro_step"}
DUMP = {"path", "format", "slices", "compared", "nodes", "tensors", "order_origin", "problems", "unfinished"}
COUNTS = {
    "pairs",
    "pass",
    "warning",
    "error",
    "incomparable",
    "unmatched_golden_nodes",
    "unmatched_target_nodes",
    "unmatched_golden_tensors",
    "unmatched_target_tensors",
}
FINDING = COORDINATES | {
    "golden",
    "target",
    "module",
    "direction",
    "place",
    "tensor",
    "class",
    "verdict",
    "reasons",
    "metrics",
    "confidence",
    "shown",
    "cause",
}
COVERAGE = {
    "nodes",
    "compared_nodes",
    "backward_nodes",
    "compared_backward_nodes",
    "outputs",
    "compared_outputs",
    "before_outputs",
    "target_nodes",
    "outputs_alone",
    "left_out",
    "unmatched_golden",
    "unmatched_target",
    "unmatched_beside",
    "said",
}
ANSWER = {
    "summary",
    "golden",
    "target",
    "counts",
    "first_bad_token",
    "first_bad_node",
    "input_differs",
    "rank_finding",
    "unlike",
    "systematic",
    "coverage",
    "not_judged",
    "ties",
    "suspects",
    "overflow",
    "seconds",
    "rules",
    "thresholds",
    "unpaired_slices",
    "notes",
    "unreadable",
    "incomparable",
}


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def strict(text: str) -> dict[str, Any]:
    """Read JSON as a strict parser does: NaN and Infinity are no numbers there."""
    found: dict[str, Any] = json.loads(text, parse_constant=refuse)
    return found


def require_contract(answer: dict[str, Any]) -> None:
    assert answer.keys() == ANSWER
    assert answer["summary"].keys() == {"id", "arguments", "text"}
    for side in ("golden", "target"):
        assert answer[side].keys() == DUMP
    counts = answer["counts"]
    assert counts.keys() == COUNTS
    assert counts["pairs"] == sum(counts[name] for name in ("pass", "warning", "error", "incomparable"))
    assert answer["seconds"].keys() == {"index", "match", "measure", "total"}
    assert answer["coverage"].keys() == COVERAGE
    findings = [answer["first_bad_token"], answer["first_bad_node"], *answer["suspects"]]
    for finding in filter(None, findings):
        assert finding.keys() == FINDING
        assert finding["verdict"] == "error"
        assert finding["reasons"]
    for difference in answer["input_differs"]:
        assert difference.keys() == COORDINATES | {"reason", "golden", "target", "tensor"}
    for overflow in answer["overflow"]:
        assert overflow.keys() == COORDINATES | {"node", "level", "reason"}
    for pair in answer["incomparable"]:
        assert pair.keys() == COORDINATES | {"golden", "target", "tensor", "reason"}


@pytest.mark.parametrize(
    ("golden", "target"),
    [
        ("msit/llama4_golden_fp32", "msit/llama4_fp16"),
        ("msit/llama4_golden_fp32", "msit/llama4_perturb_L2_T3"),
        ("msit/llama4_logits_golden", "msit/llama4_logits_perturb"),
        ("msprobe/llama_stat_mix_nan/golden", "msprobe/llama_stat_mix_nan/target"),
        ("msprobe/llama_stat_mix_microstep/golden", "msprobe/llama_stat_mix_microstep/target"),
        ("msprobe/llama_structure_mix_attn/golden", "msprobe/llama_structure_mix_attn/target"),
        ("msprobe/zoo_tensor_mix/golden", "msprobe/zoo_tensor_mix/target"),
        ("msprobe/dp2_md5_mix/golden", "msprobe/dp2_md5_mix/target"),
    ],
)
def test_json_keeps_its_contract_healthy_and_broken(
    firstdrift: Run, unpacked: Unpacked, golden: str, target: str
) -> None:
    paths = [_folder(unpacked, name) for name in (golden, target)]
    done = firstdrift("compare", *paths, "--json")
    answer = strict(done.out)
    require_contract(answer)
    bad = answer["first_bad_node"] or answer["first_bad_token"] or answer["counts"]["error"]
    compared = answer["counts"]["pairs"]
    assert done.status == (1 if bad else 0 if compared else 2)
    assert done.err == ""


def _folder(unpacked: Unpacked, name: str) -> Path:
    family, archive, *inside = name.split("/")
    return unpacked(f"{family}/{archive}").joinpath(*inside)


def test_json_says_what_the_text_says(firstdrift: Run, main_case: tuple[Path, Path]) -> None:
    answer = strict(firstdrift("compare", *main_case, "--json").out)
    token, node = answer["first_bad_token"], answer["first_bad_node"]
    assert (token["token"], token["golden"], token["tensor"]) == (2, "root.lm_head", "output.0")
    assert token["metrics"]["cosine_similarity"] == pytest.approx(0.9962170102, abs=1e-9)
    assert token["metrics"]["kl_divergence"] == pytest.approx(5.841e-3, abs=1e-5)
    assert (node["token"], node["module"], node["class"]) == (2, "model.layers.7.mlp", "source")
    assert (node["step"], node["rank"]) == (None, None), "msit dumps have tokens and no steps"
    assert answer["golden"]["slices"] == 6
    assert answer["rank_finding"] is None
    assert answer["rules"] == "firstdrift"


def test_numbers_that_are_not_finite_are_strings(firstdrift: Run, unpacked: Unpacked) -> None:
    dump = unpacked("msprobe/llama_md5_mix_perturb")
    done = firstdrift("compare", dump / "golden", dump / "target", "--json", "--rules", "msprobe")
    require_contract(strict(done.out))
    nan = unpacked("msprobe/llama_stat_mix_nan")
    answer = strict(firstdrift("compare", nan / "golden", nan / "target", "--json").out)
    assert answer["first_bad_node"]["class"] == "non-finite"
    assert "Infinity" in answer["first_bad_node"]["metrics"].values()


# --- what is compared --------------------------------------------------------------------------------


def json_of(firstdrift: Run, *arguments: str | Path) -> dict[str, Any]:
    return strict(firstdrift("compare", *arguments, "--json").out)


def test_level_logits_compares_the_logits_alone(firstdrift: Run, main_case: tuple[Path, Path]) -> None:
    answer = json_of(firstdrift, *main_case, "--level", "logits")
    assert answer["counts"]["pairs"] == 6
    assert answer["first_bad_token"]["token"] == 2
    assert answer["first_bad_node"] is None


def test_level_layer_names_the_layer(firstdrift: Run, main_case: tuple[Path, Path]) -> None:
    answer = json_of(firstdrift, *main_case, "--level", "layer")
    assert answer["first_bad_node"]["module"] == "model.layers.7"
    assert answer["first_bad_node"]["token"] == answer["first_bad_token"]["token"] == 2


def test_merged_ranks_and_the_rank_that_is_off_are_in_the_json(firstdrift: Run, unpacked: Unpacked) -> None:
    dumps = unpacked("msprobe/tp2_vs_tp1")
    done = firstdrift("compare", dumps / "golden", dumps / "target", "--tp", "1:2", "--json")
    answer = json.loads(done.out)
    bad = answer["first_bad_node"]
    assert (bad["step"], bad["rank"], bad["ranks"]) == (0, 1, [0, 1])
    assert answer["rank_finding"] == message_object(Message.of("rank.began", rank=1))


def test_the_rank_of_a_golden_dump_that_was_spread_is_in_text_and_json(
    firstdrift: Run, unpacked: Unpacked
) -> None:
    dumps = unpacked("msprobe/tp2_vs_tp1")
    swapped = ("compare", dumps / "target", dumps / "golden")
    answer = json.loads(firstdrift(*swapped, "--json").out)
    bad = answer["first_bad_node"]
    assert (bad["rank"], bad["golden_rank"], bad["golden_ranks"]) == (0, 1, [0, 1])
    assert answer["rank_finding"]["id"] == "rank.of_golden"
    assert titled_within("rank", "1 of the golden dump\n") in firstdrift(*swapped).out
    assert titled_within("rank", "1\n") in firstdrift("compare", dumps / "golden", dumps / "target").out


@pytest.mark.parametrize("size", ["0", "two", "1:2:3", "1:", ""])
def test_sizes_that_are_none_are_refused(firstdrift: Run, two_ranks: tuple[Path, Path], size: str) -> None:
    done = firstdrift("compare", *two_ranks, "--pp", size)
    assert done.status == 2
    assert "--pp" in done.err


def test_one_step_of_one_rank_can_be_compared(firstdrift: Run, two_ranks: tuple[Path, Path]) -> None:
    answer = json_of(firstdrift, *two_ranks, "--step", "0", "--rank", "1")
    everything = json_of(firstdrift, *two_ranks)
    assert answer["counts"]["pairs"] == everything["counts"]["pairs"] // 4
    assert answer["first_bad_node"]["rank"] == 1
    assert answer["rank_finding"] is None, "one rank alone says nothing of where it began"


def test_one_token_can_be_compared(firstdrift: Run, main_case: tuple[Path, Path]) -> None:
    healthy = json_of(firstdrift, *main_case, "--token", "1")
    assert healthy["first_bad_node"] is None
    broken = json_of(firstdrift, *main_case, "--token", "4")
    assert broken["first_bad_node"]["token"] == 4
    assert healthy["counts"]["pairs"] == broken["counts"]["pairs"] == 321


def test_a_token_offset_pairs_golden_tokens_with_later_target_tokens(
    firstdrift: Run, unpacked: Unpacked
) -> None:
    golden = unpacked("msit/llama4_golden_fp32")
    shifted = json_of(firstdrift, golden, golden, "--token-offset", "1")
    assert shifted["unpaired_slices"]["golden"][0]["token"] == 7
    assert shifted["unpaired_slices"]["target"][0]["token"] == 0
    assert shifted["input_differs"], "token 1 was given another token than token 0"


def test_matching_by_name_alone_leaves_what_was_renamed(firstdrift: Run, unpacked: Unpacked) -> None:
    dump = unpacked("msprobe/d4_renamed")
    aligned = json_of(firstdrift, dump / "golden", dump / "target")["counts"]
    by_name = json_of(firstdrift, dump / "golden", dump / "target", "--no-structure")["counts"]
    assert by_name["unmatched_golden_nodes"] > aligned["unmatched_golden_nodes"]
    assert by_name["pairs"] < aligned["pairs"]


def test_the_rules_of_a_peer_can_be_asked_for(firstdrift: Run, unpacked: Unpacked) -> None:
    dump = unpacked("msprobe/llama_stat_mix_perturb")
    answer = json_of(firstdrift, dump / "golden", dump / "target", "--rules", "msprobe")
    assert (answer["counts"]["warning"], answer["counts"]["error"]) == (17, 3)
    assert answer["rules"] == "msprobe"


def test_thresholds_are_moved_by_name(
    firstdrift: Run, main_case: tuple[Path, Path], unpacked: Unpacked
) -> None:
    golden, healthy = main_case[0], unpacked("msit/llama12_bf16")
    assert json_of(firstdrift, golden, healthy)["first_bad_node"] is None
    moved = ("--threshold", "floor=0.1", "--threshold", "factor=1")
    strict_rules = json_of(firstdrift, golden, healthy, *moved)
    assert strict_rules["first_bad_node"] is not None
    assert strict_rules["thresholds"] == {"factor": 1.0, "floor": 0.1}
    lines = firstdrift("compare", golden, healthy, *moved).out.splitlines()
    assert titled("thresholds", "factor=1, floor=0.1") in lines


def test_a_healthy_run_tells_noise_from_faults(
    firstdrift: Run, main_case: tuple[Path, Path], unpacked: Unpacked
) -> None:
    golden, target = main_case
    healthy = unpacked("msit/llama12_bf16")
    moved = ("--threshold", "floor=0.1", "--threshold", "factor=1", "--baseline", healthy)
    assert json_of(firstdrift, golden, healthy, *moved)["first_bad_node"] is None
    found = json_of(firstdrift, golden, target, *moved)["first_bad_node"]
    assert (found["token"], found["module"]) == (2, "model.layers.7.mlp")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--threshold", "flor=1"), "thresholds.hint.similar"),
        (("--threshold", "floor=low"), "thresholds.refused"),
        (("--threshold", "floor"), "thresholds.no_word"),
    ],
)
def test_a_threshold_that_makes_no_sense_is_refused(
    firstdrift: Run, main_case: tuple[Path, Path], option: tuple[str, str], said: str
) -> None:
    done = firstdrift("compare", *main_case, *option)
    assert done.status == 2
    assert says(done.err, said)


def test_a_baseline_of_other_slices_is_refused(
    firstdrift: Run, main_case: tuple[Path, Path], two_ranks: tuple[Path, Path]
) -> None:
    done = firstdrift("compare", *main_case, "--baseline", two_ranks[0])
    assert done.status == 2
    assert says(done.err, "comparison.options.baseline_elsewhere")


# --- files -------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk to write to")
@pytest.mark.parametrize("option", ["--csv", "--xlsx", "--export-data-mapping"])
def test_a_file_for_which_there_is_no_space_is_named(
    firstdrift: Run, unpacked: Unpacked, option: str
) -> None:
    dump = unpacked("msprobe/llama_stat_list")
    done = firstdrift("compare", dump / "golden", dump / "target", option, "/dev/full")
    assert done.status == 2
    assert says(done.err, "cli.report_not_written")
    assert "/dev/full: " in done.err
    assert "No space left on device" in done.err


def test_csv_and_xlsx_hold_every_pair(firstdrift: Run, unpacked: Unpacked, tmp_path: Path) -> None:
    dump = unpacked("msprobe/zoo_tensor_mix")
    files = tmp_path / "pairs.csv", tmp_path / "pairs.xlsx"
    done = firstdrift(
        "compare", dump / "golden", dump / "target", "--csv", files[0], "--xlsx", files[1], "--json"
    )
    counts = strict(done.out)["counts"]
    with files[0].open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    unmatched = sum(count for name, count in counts.items() if name.startswith("unmatched"))
    assert len(rows) == counts["pairs"] + unmatched
    assert sum(row["verdict"] == "unmatched" for row in rows) == unmatched > 0
    assert sum(row["verdict"] == "error" for row in rows) == counts["error"]
    with closing(openpyxl.load_workbook(files[1])) as book:
        sheet = list(book.active.iter_rows(values_only=True))
    assert sheet[0] == COLUMNS
    assert len(sheet) == len(rows) + 1
    assert done.status == 1


def test_a_file_for_which_there_is_no_space_exits_with_2_and_loses_nothing(
    firstdrift: Run, unpacked: Unpacked
) -> None:
    dump = unpacked("msit/nested")
    done = firstdrift("compare", dump, dump, "--csv", "/dev/full")
    assert done.status == 2
    assert says(done.out, "summary.equal_bits")
    assert says(done.err, "cli.report_not_written")
    assert "/dev/full: " in done.err


def test_where_nothing_is_matched_the_exit_status_is_2(firstdrift: Run, unpacked: Unpacked) -> None:
    golden, target = unpacked("msprobe/zoo_stat_mix") / "golden", unpacked("msprobe/llama_stat_mix_perturb")
    done = firstdrift("compare", golden, target / "target", "--no-structure")
    assert (done.status, says(done.out, "summary.no_values")) == (2, True)


@pytest.mark.parametrize(
    "option", ["--csv", "--xlsx", "--export-data-mapping", "--export-layer-mapping", "--suggest-mapping"]
)
@pytest.mark.parametrize("file", ["-", "no/such/folder/report"])
def test_a_report_that_cannot_be_written_is_refused_before_anything_is_read(
    firstdrift: Run, tmp_path: Path, option: str, file: str
) -> None:
    done = firstdrift("compare", tmp_path / "missing", tmp_path / "missing", option, file)
    assert done.status == 2
    assert says(done.err, "cli.not_to_terminal", "cli.report_not_writable")
    assert "missing" not in done.err


def test_it_is_said_that_there_is_nothing_to_suggest(
    firstdrift: Run, unpacked: Unpacked, tmp_path: Path
) -> None:
    dump, file = unpacked("msprobe/llama_stat_mix_perturb") / "golden", tmp_path / "matches.json"
    done = firstdrift("compare", dump, dump, "--suggest-mapping", file, "--json")
    assert (done.status, says(done.err, "cli.nothing_to_suggest")) == (0, True)
    assert json.loads(done.out)
    assert json.loads(file.read_text("utf-8"))["edits"] == []


@pytest.mark.parametrize(
    ("golden", "target"),
    [
        ("msit/llama12_golden_fp32", "msit/llama4_golden_fp32"),
        ("msit/llama4_logits_golden", "msit/llama12_logits_golden"),
    ],
)
def test_where_nothing_can_be_judged_nothing_is_called_bad_nor_well(
    firstdrift: Run, unpacked: Unpacked, golden: str, target: str
) -> None:
    done = firstdrift("compare", unpacked(golden), unpacked(target))
    assert says(done.out, "summary.other_model", "summary.none_comparable")
    assert not says(done.out, "terminal.first_bad_token", "terminal.first_bad_node")
    assert done.status == 2
    answer = json.loads(firstdrift("compare", unpacked(golden), unpacked(target), "--json").out)
    assert answer["first_bad_token"] is answer["first_bad_node"] is None
    assert (answer["unlike"] is None) == says(done.out, "summary.none_comparable")


def test_tables_have_the_columns_of_the_tool_that_is_asked_for_and_advice_goes_into_a_file(
    firstdrift: Run, unpacked: Unpacked, tmp_path: Path
) -> None:
    dump = unpacked("msprobe/llama_tensor_mix_perturb")
    files = {name: tmp_path / name for name in ("pairs.csv", "pairs.xlsx", "advisor.txt")}
    said = ("--csv", files["pairs.csv"], "--xlsx", files["pairs.xlsx"], "--advisor", files["advisor.txt"])
    done = firstdrift("compare", dump / "golden", dump / "target", *said, "--columns", "msprobe")
    assert done.status == 1
    with files["pairs.csv"].open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {"NPU Name", "Bench Name", "Cosine", "Result"} <= rows[0].keys()
    with closing(openpyxl.load_workbook(files["pairs.xlsx"])) as book:
        assert [sheet.max_row for sheet in book.worksheets] == [len(rows) + 1]
    advice = files["advisor.txt"].read_text(encoding="utf-8")
    assert "Suspect Nodes: Functional.linear.20.forward.input.1\n" in advice
    firstdrift("compare", dump / "golden", dump / "target", *said[2:4], "--columns", "msit")
    with closing(openpyxl.load_workbook(files["pairs.xlsx"])) as book:
        assert book.sheetnames == ["layer", "module", "api"]
    wrong = firstdrift("compare", dump, dump, "--columns", "mine")
    assert wrong.status == 2
