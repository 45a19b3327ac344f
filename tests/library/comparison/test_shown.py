"""Beside the first bad node stands what its values show, whether tensors or statistics were recorded."""

from collections.abc import Callable
from pathlib import Path

import pytest
from messages import gaps_of

from firstdrift import compare
from firstdrift.exports.report_json import finding_object
from firstdrift.exports.text import report_text
from firstdrift.wording.text import text_of


@pytest.mark.parametrize(
    ("dump", "said"),
    [("llama_tensor_mix_perturb", "shown.values"), ("llama_stat_mix_perturb", "shown.statistics")],
)
def test_a_factor_is_said_beside_the_first_bad_node(
    unpacked: Callable[[str], Path], dump: str, said: str
) -> None:
    folder = unpacked(f"msprobe/{dump}")
    report = compare(folder / "golden", folder / "target")
    found = report.findings.first_bad_node
    assert found is not None
    assert [one.id for one in found.shown] == [said]
    assert gaps_of(found.shown[0], "hint.times")["factor"] == pytest.approx(3.0, rel=1e-5)
    assert all(text_of(sign) in report_text(report) for sign in found.cause)
    assert (finding_object(found) or {})["shown"] == list(found.shown)
