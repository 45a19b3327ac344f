"""Under `--rules bitwise`, the first bit that differs is named, and only what is proven is called equal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from library.dumps.msprobe_samples import module, tensor, write_dump
from library.verdict.made_slices import Call, MadePair, make
from msgspec.structs import replace

from firstdrift import Options, Report, compare
from firstdrift.comparison.exit_status import exit_status
from firstdrift.metrics.measure import measure_pair
from firstdrift.model.slice import Coordinates
from firstdrift.model.tensor import DataLocation, Statistics, TensorRecord, ViewStep
from firstdrift.verdict.findings import conclude
from firstdrift.verdict.judgement import Verdict
from firstdrift.wording.phrases import within

Compared = Callable[[str, str, str], Report]


def both(name: str, side: str) -> str:
    return f"msprobe/{name}/{side}"


def ids(report: Report) -> list[str]:
    return [message.id for message in within(report.findings.summary)]


def test_runs_of_equal_values_are_equal_and_it_is_said_how_much(compared: Compared) -> None:
    report = compared(*(both("llama_tensor_L1_identical", side) for side in ("golden", "target")), "bitwise")
    assert exit_status(report) == 0
    assert ids(report) == ["bitwise.equal", "bitwise.by_values", "bitwise.by_arguments"]
    assert report.findings.summary.arguments["pairs"] == report.counts.pairs == report.counts.passed


def test_equal_statistics_are_not_proven_and_never_called_equal(compared: Compared) -> None:
    report = compared(*(both("llama_stat_mix_identical", side) for side in ("golden", "target")), "bitwise")
    assert exit_status(report) == 2
    unproven = report.counts.incomparable
    assert unproven == 1084
    assert report.counts.passed == 79  # Python arguments, which are recorded whole
    assert ids(report) == ["bitwise.nothing_proven"]
    assert report.findings.summary.arguments["unproven"] == unproven
    assert {reason.id for _, _, reason in report.incomparable()} == {"bitwise.equal_statistics"}


@pytest.mark.parametrize(
    ("name", "tensor", "reason"),
    [
        ("llama_tensor_mix_perturb", "parameter.weight", "bitwise.element"),
        ("llama_md5_mix_perturb", "parameter.weight", "bitwise.digests"),
        ("llama_xor_mix_perturb", "parameter.weight", "bitwise.digests"),
        ("llama_stat_mix_perturb", "parameter.weight", "bitwise.statistics"),
    ],
)
def test_the_first_tensor_is_named_whatever_was_recorded(
    compared: Compared, name: str, tensor: str, reason: str
) -> None:
    report = compared(both(name, "golden"), both(name, "target"), "bitwise")
    first = report.findings.first_bad_node
    assert first is not None
    assert (first.module, first.tensor) == ("model.layers.2.mlp.down_proj", tensor)
    assert [one.id for one in first.reasons] == [reason]
    assert exit_status(report) == 1


def test_what_is_not_proven_before_the_first_difference_is_said(compared: Compared) -> None:
    report = compared(*(both("llama_stat_mix_perturb", side) for side in ("golden", "target")), "bitwise")
    assert ids(report)[0] == "bitwise.after_unproven"


def test_checksums_that_do_not_see_order_are_counted_apart(compared: Compared) -> None:
    report = compared(*[both("llama_xor_mix_perturb", "golden")] * 2, "bitwise")
    assert "bitwise.by_xor" in ids(report)
    assert exit_status(report) == 0


def test_the_first_token_node_and_element_are_named(compared: Compared) -> None:
    report = compared("msit/llama4_golden_fp32", "msit/llama4_perturb_L2_T3", "bitwise")
    found = report.findings
    assert found.first_bad_token is not None
    assert found.first_bad_token.coordinates.token == 3
    assert found.first_bad_node is not None
    assert found.first_bad_node.target == "root.model.layers.2.mlp"
    element = found.first_bad_node.reasons[0]
    assert element.id == "bitwise.element"
    assert element.arguments["index"] == (0, 0, 0)
    assert element.arguments["golden"] != element.arguments["target"]
    assert found.summary.arguments["equal"] == 420


def test_the_rank_that_differs_by_itself_comes_before_those_that_receive_it(compared: Compared) -> None:
    found = compared(both("dp2_stat_mix", "golden"), both("dp2_stat_mix", "target"), "bitwise").findings
    assert found.first_bad_node is not None
    assert found.first_bad_node.coordinates.rank == 1
    assert found.first_bad_node.module == "model.layers.0.mlp.down_proj"
    assert found.rank_finding is not None
    assert found.rank_finding.id == "rank.began"


def test_other_dtypes_are_a_difference_said_as_such(compared: Compared) -> None:
    found = compared("msit/llama12_golden_fp32", "msit/llama12_bf16", "bitwise").findings
    assert found.first_bad_node is not None
    assert [one.id for one in found.first_bad_node.reasons] == ["bitwise.dtypes"]


def test_zeros_of_either_sign_are_found_that_no_error_shows(tmp_path: Path) -> None:
    for side, zero in (("golden", 0.0), ("target", -0.0)):
        (tmp_path / side).mkdir()
        np.save(tmp_path / side / "layer.output.npy", np.array([[1.0, zero]], np.float32))
    report = compare(tmp_path / "golden", tmp_path / "target", Options(rules="bitwise"))
    assert report.counts.error == 1
    assert report.findings.first_bad_node is not None
    (reason,) = report.findings.first_bad_node.reasons
    assert reason.arguments["index"] == (0, 1)
    assert reason.arguments["target"] == "-0.0 (0x80000000)"
    assert compare(tmp_path / "golden", tmp_path / "target").counts.error == 0


def test_what_is_proven_and_what_is_not_are_said_beside_each_other(tmp_path: Path) -> None:
    for side in ("golden", "target"):
        data = {
            "Torch.add.0.forward": module(tensor(md5="0123abcd")),
            "Torch.mul.0.forward": module(tensor()),
        }
        write_dump(tmp_path / side / "step0" / "rank0", data, construct=dict.fromkeys(data))
    report = compare(tmp_path / "golden", tmp_path / "target", Options(rules="bitwise"))
    assert exit_status(report) == 0
    assert ids(report)[:2] == ["bitwise.equal_but", "bitwise.equal"]
    assert report.counts.passed > 0
    assert report.findings.summary.arguments["unproven"] == report.counts.incomparable > 0


def test_a_file_cut_short_is_neither_equal_nor_different(tmp_path: Path) -> None:
    for side in ("golden", "target"):
        (tmp_path / side).mkdir()
        np.save(tmp_path / side / "layer.output.npy", np.arange(64, dtype=np.float32))
        np.save(tmp_path / side / "other.output.npy", np.arange(64, dtype=np.float32))
    cut = tmp_path / "target" / "layer.output.npy"
    cut.write_bytes(cut.read_bytes()[:-100])
    report = compare(tmp_path / "golden", tmp_path / "target", Options(rules="bitwise"))
    assert (report.counts.passed, report.counts.error, report.counts.incomparable) == (1, 0, 1)
    assert exit_status(report) == 2


LAYER = "Module.layer.Layer.forward.0"
INSIDE = "Module.layer.a.Linear.forward.0"


def layer(inside: Call, **differs: float) -> MadePair:
    last = Call("Functional.gelu.0.forward", LAYER, inputs=[differs.get("given", 0.0)], outputs=[1e-7])
    outer = Call(LAYER, inputs=[differs.get("outer", 0.0)], outputs=[1e-7])
    return make(inside, last, outer)


def test_what_a_module_is_given_comes_before_what_runs_in_it_and_what_it_gives_comes_after() -> None:
    made = layer(Call(INSIDE, LAYER, inputs=[0.0], outputs=[1e-7])).judge("bitwise")
    assert (made.first.target, made.first.tensor) == (INSIDE, "output.0")
    made = layer(Call(INSIDE, LAYER, inputs=[1e-7], outputs=[1e-7]), outer=1e-7).judge("bitwise")
    assert (made.first.target, made.first.tensor) == (LAYER, "input.0")
    weighted = Call(INSIDE, LAYER, inputs=[0.0], parameters={"weight": 1e-7}, outputs=[1e-7])
    made = layer(weighted).judge("bitwise")
    assert (made.first.target, made.first.tensor) == (INSIDE, "parameter.weight")


def test_each_node_that_makes_a_difference_of_its_own_is_a_suspect() -> None:
    made = layer(Call(INSIDE, LAYER, inputs=[0.0], outputs=[1e-7])).judge("bitwise")
    assert made.origins == [INSIDE, "Functional.gelu.0.forward"]
    found = conclude([made.said])
    assert [one.target for one in found.suspects] == ["Functional.gelu.0.forward"]
    # What is given something else makes no difference of its own; nor does a module, by what runs in it.
    made = layer(Call(INSIDE, LAYER, inputs=[0.0], outputs=[1e-7]), given=1e-7).judge("bitwise")
    assert made.origins == [INSIDE]


@pytest.mark.parametrize(
    ("golden", "target", "verdict"),
    [
        pytest.param(0.0, 0.0, Verdict.PASS, id="equal"),
        pytest.param(0.0, -0.0, Verdict.ERROR, id="zeros"),
        pytest.param(float("nan"), float("nan"), Verdict.PASS, id="nan"),
        pytest.param(1, 1.0, Verdict.ERROR, id="types"),
        pytest.param("a", "b", Verdict.ERROR, id="words"),
    ],
)
def test_python_arguments_count_as_they_were_written(
    golden: object, target: object, verdict: Verdict
) -> None:
    made = make(Call("Torch.sum.0.forward", inputs=[(golden, target)], outputs=[0.0])).judge("bitwise")
    assert made.said.pairs[0].verdict is verdict


def with_record(made: MadePair, **changed: object) -> MadePair:
    """Return a pair of slices of which both tensors were recorded otherwise; lists hold golden and target."""

    def record(of: TensorRecord, side: int) -> TensorRecord:
        given = {name: value[side] if isinstance(value, list) else value for name, value in changed.items()}
        return replace(of, location=None, **given)

    (pair,) = made.plan.pairs
    pair = replace(pair, golden=record(pair.golden, 0), target=record(pair.target, 1))
    measured = measure_pair(pair.golden, pair.target, lambda _: np.empty(0))
    return replace(made, plan=replace(made.plan, pairs=(pair,)), measurements=(measured,))


NUMBERS = Statistics(1.0, 0.0, 0.5, 3.0)


@pytest.mark.parametrize(
    ("recorded", "verdict", "reason"),
    [
        pytest.param(
            {"statistics": NUMBERS}, Verdict.INCOMPARABLE, "equal_statistics", id="equal-statistics"
        ),
        pytest.param(
            {"statistics": [NUMBERS, Statistics(1.0, 0.0, 0.5, 3.0000002)]},
            Verdict.ERROR,
            "statistics",
            id="another-norm",
        ),
        pytest.param({"digest": "0123abcd"}, Verdict.PASS, None, id="digest"),
        pytest.param({"digest": ["0123abcd", "0123abce"]}, Verdict.ERROR, "digests", id="another-digest"),
        pytest.param(
            {"statistics": NUMBERS, "digest": "0123abcd"}, Verdict.PASS, None, id="digest-beside-statistics"
        ),
        pytest.param(
            {"statistics": NUMBERS, "digest": ["0123abcd", "0123abce"]},
            Verdict.ERROR,
            "digests",
            id="digest-overrules-statistics",
        ),
        pytest.param(
            {"dtype": ["float32", "float16"], "digest": "0123abcd"}, Verdict.ERROR, "dtypes", id="dtypes"
        ),
        pytest.param({"shape": [(2, 2), (2, 3)], "statistics": NUMBERS}, Verdict.ERROR, "shapes", id="sizes"),
    ],
)
def test_what_was_recorded_decides_what_is_proven(
    recorded: dict[str, object], verdict: Verdict, reason: str | None
) -> None:
    made = with_record(make(Call("Torch.sum.0.forward", outputs=[0.0])), **recorded).judge("bitwise").said
    (pair,) = made.pairs
    assert pair.verdict is verdict
    assert [one.id for one in pair.reasons] == ([f"bitwise.{reason}"] if reason else [])


@pytest.mark.parametrize("engine", ["debug_mode", "llama_cpp"])
def test_printed_digits_and_sums_prove_nothing(engine: str, unpacked: Callable[[str], Path]) -> None:
    golden = unpacked(f"engines/{engine}") / "golden"
    report = compare(golden, golden, Options(rules="bitwise"))
    assert exit_status(report) == 2
    known = [result.judgement.bits for result in report.slices]
    assert sum(bits.all.values for bits in known if bits is not None) == 0


@pytest.mark.parametrize(
    ("changes", "is_computed"),
    [
        ({"view": (ViewStep("swapped", (0, 1)),)}, False),
        ({"view": (ViewStep("plus", other=(DataLocation(Path("b.pt"), "pt"),)),)}, True),
        ({"shards": (DataLocation(Path("b.pt"), "pt"),), "axis": 0}, False),
        ({"shards": (DataLocation(Path("b.pt"), "pt"),), "axis": None}, True),
    ],
)
def test_what_is_added_up_as_it_is_read_is_computed(changes: dict[str, Any], *, is_computed: bool) -> None:
    made = make(Call("Torch.sum.0.forward", outputs=[0.0]))
    (pair,) = made.plan.pairs
    location = replace(DataLocation(Path("a.pt"), "pt"), **changes)
    target = replace(pair.target, dtype="float64", location=location)
    made = replace(made, plan=replace(made.plan, pairs=(replace(pair, target=target),)))
    (judged,) = made.judge("bitwise").said.pairs
    assert (judged.verdict is Verdict.INCOMPARABLE) is is_computed


def test_nothing_that_was_generated_before_excuses_a_token() -> None:
    logits = [np.eye(4, dtype=np.float32)[:1], np.eye(4, dtype=np.float32)[1:2]]
    slices = [
        make(
            Call("Module.lm_head.Linear.forward.0", inputs=[0.0], outputs=[(logits[0], logits[side])]),
            coordinates=Coordinates(token=token),
        )
        for token, side in ((0, 1), (1, 1))
    ]
    found = conclude([one.judge("bitwise").said for one in slices])
    assert found.first_bad_token is not None
    assert found.first_bad_token.coordinates.token == 0
    assert found.input_differs == ()
    assert found.suspects == ()  # the second is the same node
