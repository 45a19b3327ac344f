"""A real disk fills up, page by page, under each thing that writes; and then it may only be read."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from disk_points import POINTS
from soak import record, rounds
from working import compare_with_worker

from firstdrift.catalogue.engine import database_url

SCRIPT = Path(__file__).parent.parent / "disk_points.py"
USUAL = ("person", "upload", "session", "reports")
"""What the suite tries; a whole run tries all."""

ALONE = ["--map-root-user", "--mount"]


def can_mount() -> bool:
    program = shutil.which("unshare")
    mount = [*ALONE, "sh", "-c", "mount -t tmpfs none /mnt"]
    if program is None:
        return False
    return subprocess.run([program, *mount], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def dumps(unpacked: Callable[[str], Path]) -> list[Path]:
    return [unpacked("msit/llama4_golden_fp32"), unpacked("msit/llama4_perturb_L2_T3")]


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory, dumps: list[Path]) -> Path:
    """The database of a finished comparison."""
    folder = tmp_path_factory.mktemp("compared")
    compare_with_worker(database_url(folder), *dumps)
    return folder / "firstdrift.db"


@pytest.mark.skipif(not can_mount(), reason="nobody here may mount a disk of their own")
@pytest.mark.timeout(rounds(600, 7200))
@pytest.mark.parametrize("point", POINTS if rounds(0, 1) else USUAL)
def test_each_thing_that_writes_is_whole_or_not_at_all(
    point: str, tmp_path: Path, dumps: list[Path], catalogue: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    step = str(rounds(STEPS.get(point, 12), 1))
    command = [sys.executable, SCRIPT, disk, point, step, *dumps, catalogue]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        ["unshare", *ALONE, *command], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["refused"] > 0, "there was always room"
    read_only = "refused by name" if told["forbidden"] else "done without it"
    record(
        "full_disk",
        f"{point}: {told['sizes']} sizes of a real disk, {told['refused']} too small: named errors, nothing "
        f"half written, on it goes; on a read-only disk {read_only}",
    )


STEPS = {"reports": 60, "upload": 15, "archive": 15, "restore": 40, "backup": 40, "workbook": 40}
