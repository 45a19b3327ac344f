"""What was planted in the dumps of the real tools is found, and nothing is found in healthy ones."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from messages import gaps_of, ids_of

from firstdrift import Report
from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of

Compared = Callable[[str, str], Report]

MSIT_HEALTHY = [
    ("llama12_golden_fp32", "llama12_bf16"),
    ("llama12_bf16", "llama12_golden_fp32"),
    ("llama12_logits_golden", "llama12_logits_bf16"),
    ("llama12_golden_fp32", "llama12_logits_bf16"),
    ("llama12_golden_fp32", "llama12_stats_golden"),
    ("llama4_golden_fp32", "llama4_golden_fp32"),
    ("llama4_golden_fp32", "llama4_bf16"),
    ("llama4_golden_fp32", "llama4_fp16"),
    ("llama4_golden_fp32", "llama4_sdpa"),
    ("llama4_fp16", "llama4_bf16"),
    ("llama4_sdpa", "llama4_bf16"),
    ("llama4_golden_fp32", "llama4_api"),
    ("llama4_golden_fp32", "llama4_filter"),
    ("llama4_golden_fp32", "llama4_weights"),
    ("llama4_logits_golden", "llama4_logits_bf16"),
    ("llama4_golden_fp32", "llama4_logits_golden"),
    ("llama4_stats1_golden", "llama4_stats1_bf16"),
    ("llama4_stats2_golden", "llama4_stats2_bf16"),
    ("llama4_golden_fp32", "llama4_stats1_bf16"),
    ("llama4_stats1_bf16", "llama4_bf16"),
    ("nested", "nested"),
    ("llama4_twoprompts", "llama4_twoprompts"),
]

MSIT_FAULTS = [
    ("llama12_golden_fp32", "llama12_bf16_bad_L7_T2", 2, "model.layers.7.mlp"),
    ("llama12_bf16", "llama12_bf16_bad_L7_T2", 2, "model.layers.7.mlp"),
    ("llama12_bf16_bad_L7_T2", "llama12_golden_fp32", 2, "model.layers.7.mlp"),
    ("llama12_golden_fp32", "llama12_perturb_L7_T2", 2, "model.layers.7.mlp"),
    ("llama4_golden_fp32", "llama4_perturb_L2_T3", 3, "model.layers.2.mlp"),
    ("llama4_perturb_L2_T3", "llama4_golden_fp32", 3, "model.layers.2.mlp"),
]

MSIT_LOGITS_FAULTS = [
    ("llama12_logits_golden", "llama12_logits_bad", 2),
    ("llama12_logits_bf16", "llama12_logits_bad", 2),
    ("llama12_golden_fp32", "llama12_logits_bad", 2),
    ("llama4_logits_golden", "llama4_logits_perturb", 3),
    ("llama4_golden_fp32", "llama4_logits_perturb", 3),
]

MSPROBE_HEALTHY = [
    "llama_stat_mix_identical",
    "llama_stat_mix_attn",  # eager against scaled_dot_product_attention
    "llama_stat_mix_recompute",  # gradient checkpointing in the target alone
    "llama_tensor_L0_bf16",
    "llama_tensor_L1_identical",
    "llama_structure_mix_attn",
]


@dataclass(frozen=True)
class Fault:
    """What was planted in a dump: the node as the dump names it, the module around it, its class."""

    dump: str
    node: str
    module: str | None
    said: str
    step: int = 0
    rank: int | None = 0
    target: str = "target"


DOWN_PROJ = "model.layers.2.mlp.down_proj"
LINEAR = "Functional.linear.20.forward"
MODULE = "Module.model.layers.2.mlp.down_proj.Linear.forward.0"
MSPROBE_FAULTS = [
    Fault("llama_stat_mix_perturb", LINEAR, DOWN_PROJ, "weights differ"),
    Fault("llama_tensor_mix_perturb", LINEAR, DOWN_PROJ, "weights differ"),
    Fault("llama_md5_mix_perturb", LINEAR, DOWN_PROJ, "weights differ"),
    Fault("llama_xor_mix_perturb", LINEAR, DOWN_PROJ, "weights differ"),
    Fault("llama_stat_mix_precision_high", LINEAR, DOWN_PROJ, "weights differ"),
    Fault("llama_stat_mix_riskall", LINEAR, DOWN_PROJ, "weights differ"),
    Fault("llama_stat_mix_tensorlist", LINEAR, DOWN_PROJ, "weights differ"),
    Fault("llama_stat_list", LINEAR, DOWN_PROJ, "weights differ"),
    Fault("llama_stat_L1_perturb", LINEAR, None, "weights differ"),
    Fault("llama_stat_noextra", LINEAR, DOWN_PROJ, "weights differ"),
    Fault("llama_stat_L0_perturb", MODULE, DOWN_PROJ, "weights differ"),
    Fault("llama_stat_L0_generate", MODULE, DOWN_PROJ, "weights differ"),
    Fault("async_stat_mix", MODULE, DOWN_PROJ, "weights differ"),
    Fault("llama_stat_mix_proc", MODULE, DOWN_PROJ, "weights differ", rank=None),
    Fault("llama_stat_fwdout", LINEAR, DOWN_PROJ, "source"),  # neither inputs nor weights are in the dump
    Fault("d4_renamed", MODULE, DOWN_PROJ, "source", rank=None),
    Fault(
        "d4_renamed",
        "Functional.linear.17.forward",
        "model.layers.2.self_attn.o_proj",
        "weights differ",
        rank=None,
        target="target_scaled_weight",
    ),
    Fault(
        "d32_renamed",
        "Module.model.layers.16.mlp.down_proj.Linear.forward.0",
        "model.layers.16.mlp.down_proj",
        "source",
        rank=None,
    ),
    Fault(
        "mixtral_stat_mix_perturb",
        "Functional.linear.21.forward",
        "model.layers.1.mlp.experts",
        "weights differ",
    ),
    Fault(
        "megatron_microstep_stat_mix",
        "Tensor.t.7.forward",
        "0.module.module.decoder.layers.1.mlp.linear_fc2",
        "weights differ",
    ),
    Fault("llama_stat_mix_nan", "Functional.linear.12.forward", "model.layers.1.mlp.up_proj", "non-finite"),
    Fault("llama_stat_mix_inf", "Functional.linear.12.forward", "model.layers.1.mlp.up_proj", "non-finite"),
    Fault("llama_stat_mix_3steps", "Tensor.mul_.0.forward", "optimizer", "structure differs"),
    Fault(
        "llama_tensor_L0_2steps",
        "Module.model.embed_tokens.Embedding.forward.0",
        "model.embed_tokens",
        "weights differ",
        step=1,
    ),
    Fault(
        "dp2_stat_mix",
        "Functional.linear.6.forward",
        "model.layers.0.mlp.down_proj",
        "weights differ",
        rank=1,
    ),
    Fault(
        "dp2_md5_mix", "Functional.linear.6.forward", "model.layers.0.mlp.down_proj", "weights differ", rank=1
    ),
    Fault("zoo_stat_mix", "Functional.linear.0.forward", "w.lin", "weights differ"),
    Fault("zoo_tensor_mix", "Functional.linear.0.forward", "w.lin", "weights differ"),
    Fault("zoo_xor_mix", "Functional.linear.0.forward", "w.lin", "weights differ"),
]


def require_clean(report: Report) -> None:
    findings = report.findings
    assert findings.first_bad_token is None
    assert findings.first_bad_node is None
    assert findings.suspects == ()
    assert findings.input_differs == ()
    assert findings.overflow == ()
    assert report.counts.error == 0
    assert report.counts.warning == 0


@pytest.mark.parametrize(("golden", "target"), MSIT_HEALTHY)
def test_nothing_is_found_in_healthy_msit_dumps(compared: Compared, golden: str, target: str) -> None:
    report = compared(f"msit/{golden}", f"msit/{target}")
    require_clean(report)
    assert report.counts.passed > 0
    assert report.counts.incomparable == 0


@pytest.mark.parametrize(("golden", "target", "token", "module"), MSIT_FAULTS)
def test_the_token_and_the_module_of_a_planted_fault_are_found(
    compared: Compared, golden: str, target: str, token: int, module: str
) -> None:
    report = compared(f"msit/{golden}", f"msit/{target}")
    bad_token, bad_node = report.findings.first_bad_token, report.findings.first_bad_node
    assert bad_token is not None
    assert bad_node is not None
    assert bad_token.coordinates.token == bad_node.coordinates.token == token
    assert bad_node.module == module
    assert bad_node.node_class == "source"
    assert bad_token.target == "root.lm_head"
    assert gaps_of(report.findings.summary, "finding.token") == {"number": token}
    assert gaps_of(report.findings.summary, "finding.node")["bad_node"] == module
    assert report.counts.error > 0


@pytest.mark.parametrize(("golden", "target", "token"), MSIT_LOGITS_FAULTS)
def test_logits_alone_tell_the_first_bad_token(
    compared: Compared, golden: str, target: str, token: int
) -> None:
    findings = compared(f"msit/{golden}", f"msit/{target}").findings
    assert findings.first_bad_token is not None
    assert findings.first_bad_token.coordinates.token == token
    assert findings.first_bad_node is None
    assert "finding.token_unlocated" in ids_of(findings.summary)


@pytest.mark.parametrize("dump", MSPROBE_HEALTHY)
def test_nothing_is_found_in_healthy_msprobe_dumps(compared: Compared, dump: str) -> None:
    require_clean(compared(f"msprobe/{dump}/golden", f"msprobe/{dump}/target"))


@pytest.mark.parametrize("fault", MSPROBE_FAULTS, ids=lambda fault: f"{fault.dump}-{fault.target}")
def test_what_was_planted_in_msprobe_dumps_is_found(compared: Compared, fault: Fault) -> None:
    findings = compared(f"msprobe/{fault.dump}/golden", f"msprobe/{fault.dump}/{fault.target}").findings
    bad = findings.first_bad_node
    assert bad is not None
    assert (bad.target, bad.module, bad.node_class) == (fault.node, fault.module, fault.said)
    assert (bad.coordinates.step, bad.coordinates.rank) == (fault.step, fault.rank)
    assert bad.verdict == "error"
    assert bad.reasons
    assert findings.first_bad_token is None, "training steps have no tokens"
    assert (fault.module or fault.node) in text_of(findings.summary)


def test_structure_dumps_say_that_there_are_no_values(compared: Compared) -> None:
    report = compared("msprobe/llama_structure_mix_attn/golden", "msprobe/llama_structure_mix_attn/target")
    assert report.counts.pairs == 0
    assert report.findings.summary.id in {"summary.no_values", "summary.none_comparable"}


@pytest.mark.parametrize("dump", ["dp2_stat_mix", "dp2_md5_mix"])
def test_the_rank_on_which_it_began_is_named(compared: Compared, dump: str) -> None:
    findings = compared(f"msprobe/{dump}/golden", f"msprobe/{dump}/target").findings
    assert findings.rank_finding == Message.of("rank.began", rank=1)
    assert all(suspect.coordinates.rank == 1 for suspect in findings.suspects)


def test_other_token_ids_in_a_micro_batch_are_another_input_and_no_fault(compared: Compared) -> None:
    dump = "msprobe/llama_stat_mix_microstep"
    report = compared(f"{dump}/golden", f"{dump}/target")
    (difference,) = report.findings.input_differs
    assert difference.target == "Functional.embedding.1.forward"
    assert (difference.coordinates.step, difference.coordinates.micro_step) == (0, 1)
    assert report.findings.first_bad_node is None
    assert report.counts.error == 0
    assert report.findings.summary.id == "summary.other_inputs"


def test_other_input_of_one_rank_is_named_on_that_rank(compared: Compared) -> None:
    dump = "msprobe/comm2_stat_mix"
    findings = compared(f"{dump}/golden", f"{dump}/target").findings
    assert [(found.coordinates.rank, found.target) for found in findings.input_differs] == [
        (0, "Functional.linear.0.forward")
    ]
    assert findings.first_bad_node is None, "what rank 1 receives comes from rank 0"
    assert findings.suspects == ()


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_the_levels_of_overflow_follow_from_where_it_enters(compared: Compared, value: str) -> None:
    dump = f"msprobe/llama_stat_mix_{value}"
    overflow = compared(f"{dump}/golden", f"{dump}/target").findings.overflow
    assert overflow[0].node == "Functional.linear.12.forward"
    assert overflow[0].level == "high", "its weight is bad, and so is its output"
    assert {found.level for found in overflow} <= {"high", "critical", "medium"}


def test_a_renamed_model_leaves_next_to_nothing_unmatched(compared: Compared) -> None:
    for dump in ("d4_renamed", "d32_renamed"):
        counts = compared(f"msprobe/{dump}/golden", f"msprobe/{dump}/target").counts
        assert counts.unmatched_golden_nodes + counts.unmatched_target_nodes <= 4
