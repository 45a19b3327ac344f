"""Two files of one tensor each: nothing ran before them that an error could come from."""

from pathlib import Path

import numpy as np
import pytest

from firstdrift.comparison.compare import compare


@pytest.mark.parametrize(
    ("factor", "noise", "is_bad"),
    [
        (1.0, 0.0, False),
        (1.0, 1e-7, False),
        (1.0, 0.01, False),
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
    assert (report.findings.summary.id == "summary.agree") == (noise < 1e-6 and factor == 1.0)
