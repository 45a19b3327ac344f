"""Two folders of plain files are held against each other though one writes `_` where the other writes `.`."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from firstdrift import Report
from firstdrift.comparison.compare import compare

PARTS = ("attn.in_proj", "attn.out_proj", "attn", "mlp.fc1", "mlp.fc2", "mlp")
"""In an order that names tell too."""
NAMES = [
    "model.embed_tokens",
    *(f"model.layers.{layer}.{part}" for layer in range(3) for part in PARTS),
    "model.norm",
    "model.output_head",
]
FAULTY = "model.layers.1.mlp.fc1"
SPELLINGS: dict[str, Callable[[str], str]] = {
    "underscores": lambda name: name.replace(".", "_"),
    "hyphens": lambda name: name.replace(".", "-"),
    "without the first word": lambda name: name.removeprefix("model.").replace(".", "_"),
    "marked as outputs": lambda name: f"{name.replace('.', '_')}_output_0",
}


def write(folder: Path, spell: Callable[[str], str], *, faulty: bool = False) -> Path:
    """Write what each module gives; from the faulty one on it is off."""
    folder.mkdir()
    random, noise = np.random.default_rng(1), np.random.default_rng(2)
    for at, name in enumerate(NAMES):
        values = random.standard_normal((12, 16)).astype(np.float32)
        amount = 0.3 if faulty and at >= NAMES.index(FAULTY) else 1e-7
        values = values * (1 + amount * noise.standard_normal(values.shape))
        np.save(folder / f"{spell(name)}.npy", values.astype(np.float32))
    return folder


def reports(tmp_path: Path, spelling: str, *, faulty: bool) -> list[Report]:
    plain = [write(tmp_path / side, str, faulty=faulty and side == "bad") for side in ("good", "bad")]
    other = [
        write(tmp_path / f"{side}-other", SPELLINGS[spelling], faulty=faulty and side == "bad")
        for side in ("good", "bad")
    ]
    return [compare(plain[0], other[1]), compare(other[0], plain[1])]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_everything_is_compared(tmp_path: Path, spelling: str) -> None:
    for report in reports(tmp_path, spelling, faulty=False):
        assert report.counts.pairs == report.counts.passed == len(NAMES)
        assert report.findings.first_bad_node is None


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_first_bad_node_is_that_of_the_names_that_have_parts(tmp_path: Path, spelling: str) -> None:
    for report, names in zip(reports(tmp_path, spelling, faulty=True), ("golden", "target"), strict=True):
        found = report.findings.first_bad_node
        assert found is not None
        assert getattr(found, names) == FAULTY


def test_names_that_stand_for_nothing_or_for_two_are_left_over(tmp_path: Path) -> None:
    golden, target = tmp_path / "golden", tmp_path / "target"
    for folder, names in ((golden, ["net.a.b_c", "net.a_b.c", "net.d"]), (target, ["net_a_b_c", "x_y"])):
        folder.mkdir()
        for at, name in enumerate(names):
            np.save(folder / f"{name}.npy", np.full((4, at + 2), 1.5, np.float32))
    report = compare(golden, target)
    assert report.counts.pairs == 0
    assert report.counts.unmatched_target_nodes == len(("net_a_b_c", "x_y"))
