"""A compiled graph is held against the graph it was compiled from: what was planted in it is found."""

import shutil
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from library.dumps.torchair_samples import floats, operator, write, write_fx, write_ge
from messages import gaps_of

from firstdrift import Report, compare

Unpacked = Callable[[str], Path]
Compared = Callable[[str, str], Report]
FX, GE = "msit/torchair/msit_fx_dump", "msit/torchair/msit_ge_dump"


@pytest.mark.parametrize(("golden", "target", "node"), [(FX, GE, "MatMul"), (GE, FX, "mm-aten.mm.default")])
def test_a_product_off_by_three_percent_is_found_though_its_cosine_is_one(
    compared: Compared, golden: str, target: str, node: str
) -> None:
    report = compared(golden, target)
    findings = report.findings
    assert findings.first_bad_token is not None
    assert findings.first_bad_token.coordinates.token == 1
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.target == node
    assert findings.first_bad_node.coordinates.token == 1
    assert findings.first_bad_node.metrics["cosine_similarity"] == pytest.approx(1.0, abs=1e-7)
    assert findings.first_bad_node.metrics["relative_l2"] == pytest.approx(0.03, rel=0.05)
    assert {finding.target for finding in findings.suspects} <= {node}


def test_every_pair_of_the_peer_is_compared_and_the_first_token_is_healthy(compared: Compared) -> None:
    report = compared(FX, GE)
    # msit has three more rows: a Cast that the compiler put in, its input against its own output.
    assert report.counts.pairs == 27 - 3
    assert report.counts.incomparable == 0
    assert report.counts.unmatched_target_nodes == 3
    assert report.slices[0].judgement.counts.passed == report.slices[0].judgement.counts.pairs == 8


@pytest.mark.parametrize("side", [FX, GE])
def test_a_run_held_against_itself_has_no_finding(unpacked: Unpacked, tmp_path: Path, side: str) -> None:
    family, archive, folder = side.split("/")
    original = unpacked(f"{family}/{archive}") / folder
    shutil.copytree(original, tmp_path / "copy")
    report = compare(original, tmp_path / "copy")
    assert report.findings.first_bad_token is None
    assert report.findings.first_bad_node is None
    assert report.counts.passed == report.counts.pairs > 0
    assert report.counts.unmatched_golden_nodes == report.counts.unmatched_target_nodes == 0


def test_the_token_before_the_fault_alone_is_healthy(unpacked: Unpacked) -> None:
    archive = unpacked("msit/torchair")
    graph = "msit_ge_dump/worldsize1_global_rank0/20250101000000/0/graph_1_0/1/0"
    report = compare(archive / "msit_fx_dump/worldsize1_global_rank0/graph_1/0", archive / graph)
    assert report.counts.pairs == report.counts.passed == 8
    assert report.findings.first_bad_node is None


def test_a_fused_softmax_may_magnify_what_it_is_given(tmp_path: Path) -> None:
    """It turns absolute errors into relative ones, whatever it was fused with."""
    text = operator("Add", "Add", ["x:0", "y:0"], "add-aten.add.Tensor.OUTPUT.0") + operator(
        "Softmax", "SoftmaxV2", ["Add:0"], "softmax-aten.softmax.int.OUTPUT.0"
    )
    text += operator("Neg", "Neg", ["Softmax:0"], "neg-aten.neg.default.OUTPUT.0")
    write(tmp_path / "ge/dynamo_original_graph_1_rank_0_pid_7_ts_1.txt", text.encode())
    fx = tmp_path / "fx/worldsize1_global_rank0/graph_1/0"
    ge = tmp_path / "ge/worldsize1_global_rank0/20250101000000/0/graph_1_0/1/0"
    x, y = 10 * floats(8, 64, dtype="float32"), floats(8, 64, seed=1, dtype="float32")
    off = x * (1 + np.sign(floats(8, 64, seed=2, dtype="float32")) * np.float32(2**-6))
    results = []
    for given in (x, off):
        total = given + y
        powers = np.exp(total - total.max(-1, keepdims=True))
        results.append((total, powers / powers.sum(-1, keepdims=True)))
    (total, golden), (_, target) = results
    write_fx(fx, "add-aten.add.Tensor", 1, [x, y], [total])
    write_fx(fx, "softmax-aten.softmax.int", 2, [total], [golden])
    write_fx(fx, "neg-aten.neg.default", 3, [golden], [-golden])
    kind = ml_dtypes.bfloat16
    write_ge(
        ge,
        "AutomaticBufferFusionOp",
        "AddSoftmax",
        1,
        [off.astype(kind), y.astype(kind)],
        [target.astype(kind)],
    )
    write_ge(ge, "Neg", "Neg", 3, [target.astype(kind)], [-target.astype(kind)])
    report = compare(tmp_path / "fx", tmp_path / "ge")
    errors = [row.output_error for one in report.slices for row in one.judgement.rows if row.output_error]
    assert max(errors) > 0.07
    assert report.findings.first_bad_node is None


def test_a_healthy_chain_in_bfloat16_against_float32_has_no_finding(tmp_path: Path) -> None:
    """Several layers, several tokens: rounding of the compiled graph is no fault."""
    weights = [floats(32, 32, seed=at, dtype="float32") / 6 for at in range(6)]
    text = ""
    for layer in range(6):
        given = f"Add_{layer - 1}:0" if layer else "arg:0"
        text += operator(
            f"MatMul_{layer}", "MatMul", [given, f"w{layer}:0"], f"mm_{layer}-aten.mm.default.OUTPUT.0"
        )
        text += operator(
            f"Tanh_{layer}", "Tanh", [f"MatMul_{layer}:0"], f"tanh_{layer}-aten.tanh.default.OUTPUT.0"
        )
        text += operator(
            f"Add_{layer}", "Add", [f"Tanh_{layer}:0", given], f"add_{layer}-aten.add.Tensor.OUTPUT.0"
        )
    write(tmp_path / "ge/dynamo_original_graph_1_rank_0_pid_7_ts_1.txt", text.encode())
    for token in range(3):
        states = {"fx": floats(4, 32, seed=token, dtype="float32")}
        states["ge"] = states["fx"].astype(ml_dtypes.bfloat16)
        fx = tmp_path / f"fx/worldsize1_global_rank0/graph_1/{token}"
        ge = tmp_path / f"ge/worldsize1_global_rank0/20250101000000/0/graph_1_0/1/{token}"
        for layer, weight in enumerate(weights):
            kind = states["fx"].dtype
            product = states["fx"] @ weight
            active = np.tanh(product)
            total = active + states["fx"]
            write_fx(fx, f"mm_{layer}-aten.mm.default", 3 * layer, [states["fx"], weight], [product])
            write_fx(fx, f"tanh_{layer}-aten.tanh.default", 3 * layer + 1, [product], [active])
            write_fx(fx, f"add_{layer}-aten.add.Tensor", 3 * layer + 2, [active, states["fx"]], [total])
            states["fx"] = total.astype(kind)
            rough = weight.astype(ml_dtypes.bfloat16)
            small = (states["ge"].astype(kind) @ rough.astype(kind)).astype(ml_dtypes.bfloat16)
            bent = np.tanh(small.astype(kind)).astype(ml_dtypes.bfloat16)
            after = (bent.astype(kind) + states["ge"].astype(kind)).astype(ml_dtypes.bfloat16)
            write_ge(ge, "MatMulV2", f"MatMul_{layer}", 3 * layer, [states["ge"], rough], [small])
            write_ge(
                ge,
                "AutomaticBufferFusionOp",
                f"Tanh_{layer}Add_{layer}",
                3 * layer + 1,
                [small, states["ge"]],
                [after],
            )
            states["ge"] = after
    report = compare(tmp_path / "fx", tmp_path / "ge")
    assert report.findings.first_bad_token is None
    assert report.findings.first_bad_node is None
    assert report.counts.passed == report.counts.pairs == 3 * 6 * 6


def test_other_token_ids_are_another_input_though_aten_takes_the_weight_first(tmp_path: Path) -> None:
    weight = floats(50, 8, dtype="float32")
    for side, ids in (("golden", [3, 1, 4]), ("target", [3, 1, 5])):
        fx = tmp_path / f"{side}/worldsize1_global_rank0/graph_1/0"
        rows = weight[ids]
        write_fx(fx, "embedding-aten.embedding.default", 1, [weight, np.array(ids)], [rows])
        write_fx(fx, "neg-aten.neg.default", 2, [rows], [-rows])
    findings = compare(tmp_path / "golden", tmp_path / "target").findings
    assert findings.first_bad_node is None
    (difference,) = findings.input_differs
    assert gaps_of(difference.reason, "input.first_mismatch") == {"golden": 4, "target": 5, "index": 2}
