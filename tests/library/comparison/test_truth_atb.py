"""What was planted in ATB dumps is found, token by token, and nothing is found in healthy ones."""

from collections.abc import Callable

import pytest

from firstdrift import Report

Compared = Callable[[str, str], Report]

HEALTHY = [
    ("atb12_fp32_golden", "atb12_bf16_3tok"),
    ("atb12_bf16", "atb12_bf16_nowarm"),
    ("atb12_fp32_golden", "atb12_bf16_stats"),
    ("msprobe_atb_golden", "msprobe_atb_bf16"),
    ("msprobe_atb_golden", "msprobe_atb_bf16_alias"),
    ("msprobe_atb_golden", "atb12_bf16_nowarm"),
]
FAULTS = [
    ("atb12_fp32_golden", "atb12_fp32_perturb_io"),
    ("atb12_bf16", "atb12_bf16_bad"),
]


@pytest.mark.parametrize(("golden", "target"), HEALTHY)
def test_a_healthy_run_has_no_finding_and_every_tensor_is_compared(
    compared: Compared, golden: str, target: str
) -> None:
    report = compared(f"msit/{golden}", f"msit/{target}")
    assert report.findings.first_bad_token is None
    assert report.findings.first_bad_node is None
    counts = report.counts
    assert counts.passed == counts.pairs > 2000
    assert counts.unmatched_golden_nodes == counts.unmatched_target_nodes == 0


@pytest.mark.parametrize(("golden", "target"), FAULTS)
def test_a_fault_is_found_in_its_token_and_layer(compared: Compared, golden: str, target: str) -> None:
    findings = compared(f"msit/{golden}", f"msit/{target}").findings
    assert findings.first_bad_token is not None
    assert findings.first_bad_token.coordinates.token == 2
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.coordinates.token == 2
    # The dumps hold the noise of the feed-forward block from the residual add on.
    assert findings.first_bad_node.target == "25_Decoder_layer/3_ElewiseOperation"
    assert findings.first_bad_node.module == "Decoder_layer.7"


def test_logits_alone_show_the_token(compared: Compared) -> None:
    findings = compared("msit/atb12_bf16_logits", "msit/atb12_bad_logits").findings
    assert findings.first_bad_token is not None
    assert findings.first_bad_token.coordinates.token == 2
    assert findings.first_bad_node is None


def test_of_a_damaged_dump_one_tensor_is_incomparable_and_the_rest_is_compared(compared: Compared) -> None:
    report = compared("msit/atb12_bf16_3tok", "msit/corrupt")
    assert report.counts.incomparable == 1
    assert report.counts.passed == report.counts.pairs - 1
    assert report.findings.first_bad_node is None
