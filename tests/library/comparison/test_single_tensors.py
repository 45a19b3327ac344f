"""Two files of one tensor each: nothing ran before them that an error could come from."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from firstdrift.comparison.compare import compare
from firstdrift.comparison.exit_status import exit_status


@pytest.mark.parametrize(
    ("factor", "noise", "is_bad"),
    [
        (1.0, 0.0, False),
        (1.0, 1e-7, False),
        (1.0, 0.0001, False),
        (1.0, 0.01, True),
        (1.0, 0.5, True),
        (3.0, 0.0, True),
        (-1.0, 0.0, True),
    ],
)
def test_a_tensor_that_is_another_one_is_bad(
    tmp_path: Path, factor: float, noise: float, is_bad: bool
) -> None:
    random = np.random.default_rng(0)
    golden = random.normal(size=(8, 64)).astype(np.float32)
    target = factor * golden + noise * random.normal(size=golden.shape)
    np.save(tmp_path / "golden.npy", golden)
    np.save(tmp_path / "target.npy", target.astype(np.float32))
    report = compare(tmp_path / "golden.npy", tmp_path / "target.npy")
    assert (report.findings.first_bad_node is not None) == is_bad
    assert report.counts.error == is_bad
    said = report.findings.summary.id
    assert (said == "summary.equal_bits") == (noise == 0.0 and factor == 1.0)
    assert (said == "summary.agree") == (0.0 < noise < 1e-6 and factor == 1.0)


def values(*, error: float, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    golden = random.normal(size=(8, 64)).astype(dtype)
    return golden, (golden + error * random.normal(size=golden.shape)).astype(dtype)


@pytest.mark.parametrize(
    ("dtype", "error", "is_bad"),
    [
        ("float64", 5e-4, False),
        ("float64", 2e-3, True),
        ("float32", 5e-4, False),
        ("float32", 2e-3, True),
        ("float16", 0.03, False),
        ("float16", 0.1, True),
    ],
)
def test_a_tensor_is_judged_by_its_dtype(tmp_path: Path, dtype: str, error: float, is_bad: bool) -> None:
    for side, array in zip(("golden", "target"), values(error=error, dtype=dtype), strict=True):
        np.save(tmp_path / f"{side}.npy", array)
    report = compare(tmp_path / "golden.npy", tmp_path / "target.npy")
    assert report.counts.error == is_bad


def test_what_came_from_a_coarser_format_is_judged_by_that(tmp_path: Path) -> None:
    golden, target = (side.astype(np.float16).astype(np.float32) for side in values(error=0.03))
    np.save(tmp_path / "golden.npy", golden)
    np.save(tmp_path / "target.npy", target)
    assert compare(tmp_path / "golden.npy", tmp_path / "target.npy").counts.error == 0


def token_file(dump: Path, token: int) -> Path:
    (found,) = dump.glob(f"*/torch_tensors/*/{token}/root.lm_head/output.pth")
    return found


@pytest.mark.parametrize(
    ("golden", "target", "bad"),
    [
        ("llama12_logits_golden", "llama12_logits_bad", [2, 3, 4, 5]),
        ("llama12_logits_golden", "llama12_logits_bf16", []),
        ("llama4_logits_golden", "llama4_logits_perturb", [3, 4, 5, 6, 7]),
        # Token 6 is healthy, and beyond the limits of msit all the same: its cosine is that of a bad token.
        ("llama4_logits_golden", "llama4_logits_bf16", [6]),
    ],
)
def test_logits_are_judged_by_cosine_and_kl_too(
    unpacked: Callable[[str], Path], golden: str, target: str, bad: list[int]
) -> None:
    sides = unpacked(f"msit/{golden}"), unpacked(f"msit/{target}")
    tokens = range(6 if "12" in golden else 8)
    found = [token for token in tokens if _is_bad(*(token_file(side, token) for side in sides))]
    assert found == bad


def _is_bad(golden: Path, target: Path) -> bool:
    report = compare(golden, target)
    node = report.findings.first_bad_node
    if node is None:
        return False
    assert {reason.id for reason in node.reasons} & {"tool.cosine", "tool.kl_divergence"}
    return exit_status(report) == 1


def test_a_file_that_is_not_named_after_logits_has_no_kl_divergence(tmp_path: Path) -> None:
    for name, is_named in (("logits.npy", True), ("hidden.npy", False)):
        for side, array in zip(("golden", "target"), values(error=1e-4), strict=True):
            (tmp_path / side).mkdir(exist_ok=True)
            np.save(tmp_path / side / name, array)
        report = compare(tmp_path / "golden" / name, tmp_path / "target" / name)
        (measured,) = report.slices[0].measurements
        assert (measured.logits is not None) == is_named
