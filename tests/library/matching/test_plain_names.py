"""Dumps that record neither order nor classes, of one model under other names, are matched part by part."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from firstdrift.comparison.compare import compare
from firstdrift.operators.fused import are_other_parts

HIDDEN, INNER, LAYERS = 32, 64, 3
GPT = {
    "embed": "transformer.wte",
    "layers": "transformer.h",
    "norm 1": "ln_1",
    "norm 2": "ln_2",
    "q": "attn.q_proj",
    "k": "attn.k_proj",
    "v": "attn.v_proj",
    "o": "attn.c_proj",
    "up": "mlp.c_fc",
    "act": "mlp.act",
    "down": "mlp.c_proj",
    "norm": "transformer.ln_f",
    "head": "lm_head",
}
NEOX = {
    "embed": "decoder.word_embeddings",
    "layers": "decoder.blocks",
    "norm 1": "input_layernorm",
    "norm 2": "pre_mlp_layernorm",
    "q": "self_attention.query",
    "k": "self_attention.key",
    "v": "self_attention.value",
    "o": "self_attention.dense",
    "up": "ffn.dense_h_to_4h",
    "act": "ffn.gelu_impl",
    "down": "ffn.dense_4h_to_h",
    "norm": "decoder.final_norm",
    "head": "output_layer",
}
META = NEOX | {
    "q": "self_attention.wq",
    "k": "self_attention.wk",
    "v": "self_attention.wv",
    "o": "self_attention.wo",
    "head": "output",
}
LINEAR = NEOX | {
    "q": "attn.linear_q",
    "k": "attn.key_linear",
    "v": "attn.value_linear",
    "o": "attn.out_linear",
}
OURS = ("query_linear", "key_linear", "value_linear", "out_linear")
WIDTHS = {"up": (HIDDEN, INNER), "act": (INNER, INNER), "down": (INNER, HIDDEN)}


def write(folder: Path, names: Mapping[str, str], rounding: float) -> dict[str, str]:
    """Write what each module takes and gives; return what is meant by each name."""
    folder.mkdir()
    random, noise = np.random.default_rng(5), np.random.default_rng(6)
    layers = [(f"{names['layers']}.{layer}.{names[part]}", f"{layer} {part}", part)
              for layer in range(LAYERS)
              for part in ("norm 1", "q", "k", "v", "o", "norm 2", "up", "act", "down")]  # fmt: skip
    around = [(names[part], part, part) for part in ("norm", "head")]
    for name, _, part in (*layers, *around):
        for role, width in zip(("input", "output"), WIDTHS.get(part, (HIDDEN, HIDDEN)), strict=True):
            values = random.standard_normal((6, width)).astype(np.float32)
            values += (rounding * noise.standard_normal(values.shape)).astype(np.float32)
            np.save(folder / f"{name}.{role}.0.npy", values)
    return {name: meant for name, meant, _ in (*layers, *around)}


@pytest.mark.parametrize(
    ("golden", "target"),
    [*product((GPT, NEOX, META), repeat=2), (GPT, LINEAR), (LINEAR, GPT)],
)
def test_names_say_what_is_query_key_and_value_where_no_order_is_recorded(
    tmp_path: Path, golden: dict[str, str], target: dict[str, str]
) -> None:
    meant = write(tmp_path / "golden", golden, 0.0), write(tmp_path / "target", target, 1e-7)
    report = compare(tmp_path / "golden", tmp_path / "target")
    matched = {
        (meant[0][match.golden[0]], meant[1][match.target[0]])
        for match in report.slices[0].plan.matches
        if match.golden and match.golden[0] in meant[0] and match.target[0] in meant[1]
    }
    assert {one for one, _ in matched} == set(meant[0].values())
    assert all(one == other for one, other in matched)
    assert report.counts.error == 0
    assert report.findings.first_bad_node is None


def test_names_whose_order_is_not_known_leave_nodes_over_and_match_none_wrongly(tmp_path: Path) -> None:
    ours = NEOX | {part: f"attn.our_{name}" for part, name in zip("qkvo", OURS, strict=True)}
    meant = write(tmp_path / "golden", GPT, 0.0), write(tmp_path / "target", ours, 1e-7)
    report = compare(tmp_path / "golden", tmp_path / "target")
    pairs = report.slices[0].plan.pairs
    assert len(pairs) > 2 * 5 * LAYERS
    assert all(meant[0][pair.golden_node] == meant[1][pair.target_node] for pair in pairs)
    assert report.findings.first_bad_node is None


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("q_proj", "query", False),
        ("q_proj", "key_linear", True),
        ("self.value", "to_k", True),
        ("query", "dense", True),
        ("dense", "c_proj", False),
        ("v_proj", "out_linear", True),
        ("o_proj", "to_out", False),
        ("query_key_value", "q_proj", False),
        ("kv_a_proj_with_mqa", "q_a_proj", True),
        ("q_a_proj", "linear_q_down_proj", False),
        ("q_a_proj", "q_b_proj", False),
        ("w1", "up_proj", True),
        ("gate_proj", "w1", False),
        ("dense", "up_proj", False),
        ("fc1", "q_proj", False),
    ],
)
def test_names_of_different_parts_are_told_apart(one: str, other: str, expected: bool) -> None:
    assert are_other_parts(one, other) is are_other_parts(other, one) is expected


ENGINE = "fused_qkv_a_proj_with_mqa"
TRAINER = ("linear_q_down_proj", "linear_kv_down_proj")


@pytest.mark.parametrize("parts", [("q_a_proj", "kv_a_proj_with_mqa"), TRAINER, ("wq_a", "wkv_a")])
@pytest.mark.parametrize("whole", [ENGINE, "fused_qkv_a_proj", "linear_qkv_down_proj"])
@pytest.mark.parametrize("wrong", [None, 0, 1])
def test_what_leads_into_latent_states_may_be_fused(
    tmp_path: Path, parts: tuple[str, str], whole: str, wrong: int | None
) -> None:
    """Names and shapes say so; values, where a part is wrong, do not."""
    random = np.random.default_rng(7)
    folders = tmp_path / "golden", tmp_path / "target"
    for folder in folders:
        folder.mkdir()
    for layer in range(LAYERS):
        around = f"model.layers.{layer}.self_attn"
        given = random.standard_normal((6, HIDDEN)).astype(np.float32)
        made = [random.standard_normal((6, width)).astype(np.float32) for width in (20, 12)]
        for folder in folders:
            np.save(folder / f"{around}.o_proj.output.0.npy", given)
        for name, values in zip(parts, made, strict=True):
            np.save(folders[0] / f"{around}.{name}.output.0.npy", values)
        if layer == 1 and wrong is not None:
            made[wrong] = made[wrong] * 1.3
        np.save(folders[1] / f"{around}.{whole}.output.0.npy", np.concatenate(made, -1))
    report = compare(*folders)
    (plan,) = (one.plan for one in report.slices)
    assert (plan.unmatched_golden, plan.unmatched_target) == ((), ())
    found = report.findings.first_bad_node
    expected = None if wrong is None else f"model.layers.1.self_attn.{parts[wrong]}"
    assert (found and found.golden) == expected
