"""Files that run a command when a careless program opens them: read by the library, a server and a worker."""

import io
import json
import pickle
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import numpy as np
import pytest
from library.dumps.test_containers_pt import Canary, hostile_pickles
from serving import serving
from soak import record

from firstdrift.comparison.postprocess import read_postprocess
from firstdrift.dumps.detect import open_dump
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import FirstdriftError
from firstdrift.matching.manual.match_set_file import read_matches
from firstdrift.parallel.slices import read_slice

TAGS = (
    "!!python/object/apply:os.system ['touch {canary}']",
    "!!python/object/new:os.system ['touch {canary}']",
    '{{a: !!python/object/apply:builtins.exec [\'open("{canary}", "w")\']}}',
    "!!python/name:os.system",
)


def malicious(canary: Path) -> Iterator[tuple[str, bytes]]:
    """Give names and contents of files that make a canary if anything in them is run."""
    for at, content in enumerate(hostile_pickles(canary).values()):
        yield f"layers.{at}.mlp.output.pt", content
    objects = np.array([Canary(exec, f"open({str(canary)!r}, 'w').close()")], dtype=object)
    for name, save in (("array.npy", np.save), ("arrays.npz", np.savez), ("packed.npz", np.savez_compressed)):
        file = io.BytesIO()
        with suppress(Exception):  # numpy asks the canary for more than it has
            save(file, objects, allow_pickle=True)  # type: ignore[operator] # three functions of one form
        yield name, file.getvalue() or pickle.dumps(objects)
    for at, text in enumerate(TAGS):
        yield f"mapping{at}.yaml", text.format(canary=canary).encode()


@pytest.fixture
def dump(tmp_path: Path) -> tuple[Path, Path]:
    """A folder of such files, among them one that is good, and the canary that must not come to be."""
    canary, folder = tmp_path / "canary", tmp_path / "root" / "dump"
    folder.mkdir(parents=True)
    for name, content in malicious(canary):
        (folder / name).write_bytes(content)
    np.save(folder / "good.npy", np.ones(3))
    return folder, canary


def read_all(folder: Path) -> int:
    """Read all tensors and mappings as a command would; return how many were refused."""
    dump = open_dump(folder)
    refused = 0
    for listing in dump.slices:
        for node in read_slice(dump, listing).nodes:
            for tensor in node.tensors:
                refused += tensor.problem is not None
                with suppress(FirstdriftError):
                    if tensor.location is not None:
                        load_tensor(tensor.location)
    for file in folder.glob("*.yaml"):
        for read in (read_postprocess, lambda path: read_matches([path])):
            with pytest.raises(FirstdriftError):
                read(file)
            refused += 1
    return refused


def test_a_canary_flies_where_code_is_run(dump: tuple[Path, Path]) -> None:
    folder, canary = dump
    with suppress(Exception):
        pickle.loads((folder / "layers.0.mlp.output.pt").read_bytes())  # noqa: S301 (that is the point)
    assert canary.exists()


def test_no_file_runs_a_command_when_it_is_read_compared_or_looked_at(
    dump: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, canary = dump
    files = len(list(folder.iterdir())) - 1
    assert read_all(folder) >= files // 2
    root = folder.parent
    with (
        serving(root, tmp_path / "data", [(folder, folder)]) as address,
        httpx2.Client(base_url=address, timeout=120) as client,
    ):
        end = time.monotonic() + 100
        while client.get("/api/v1/comparisons/1").json()["state"] not in {"done", "failed"}:
            assert time.monotonic() < end
            time.sleep(0.1)
        told = client.get("/api/v1/comparisons/1").json()
        rows = client.get("/api/v1/comparisons/1/slices/0/rows?unfold=all&count=200").json()["rows"]
        for row in rows:
            client.get(f"/c/1/s/0/n/{row['row']}")
            client.get(f"/api/v1/comparisons/1/slices/0/rows/{row['row']}/tensors/0?parts=values")
        for file in sorted(folder.iterdir()):
            asked = {"golden": str(folder), "target": str(folder), "mapping": str(file)}
            client.post("/api/v1/comparisons", json=asked)
            client.get("/dumps", params={"path": str(file)})
    assert told["state"] == "done", json.dumps(told)[:500]
    assert len(rows) >= files // 2
    assert not canary.exists()
    record("pickles", f"{files} malicious files through library, server and worker: 0 ran")
