"""Small files of every kind that firstdrift reads: real ones, cut down, and some that are written here.

write_seeds(folder, unpacked)   folder/KIND/…    what mutants are made of, in the layout that is read
"""

import io
import json
import shutil
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzz.mutations import YAML
from library.dumps import atb_samples, torchair_samples
from library.dumps.test_tensorrt_llm import run as write_tensorrt
from library.dumps.test_titan import step as write_titan
from safetensors.numpy import save_file

Unpacked = Callable[[str], Path]
HERE = Path(__file__).parent
ROLLOUTS = HERE.parent / "dumps" / "rollout"

REAL_DUMPS = {
    "msprobe-statistics": "msprobe/comm2_stat_mix/golden",
    "msprobe-tensors": "msprobe/zoo_tensor_mix/golden",
    "msprobe-digests": "msprobe/zoo_xor_mix/golden",
    "msprobe-structure": "msprobe/llama_structure_mix_attn/golden",
    "msprobe-debug": "msprobe/debug_stat/golden",
    "msprobe-aclgraph": "msprobe/aclgraph/tensor_bad",
    "msprobe-atb": "msit/msprobe_atb_bf16",
    "msit-torch": "msit/llama4_logits_golden",
    "msit-torch-statistics": "msit/llama4_stats1_golden",
    "torchair-fx": "msit/torchair/msit_fx_dump",
    "torchair-ge": "msit/torchair/msit_ge_dump",
    "hf-debug-tree": "transformers/hf_debug_tree/golden",
    "sglang": "engines/sglang_dumper/golden",
    "passes": "engines/sglang_passes/golden",
    "polygraphy": "engines/polygraphy/golden.json",
    "debug-mode": "engines/debug_mode/golden",
    "llama-cpp": "engines/llama_cpp/golden",
    "checkpoint": "msit/quantised_weights/golden",
}
"""Of each kind of dump, which real one is cut down."""

MOST_FILES, MOST_ENTRIES, MOST_LINES = 12, 7, 70
"""Of each folder, of each list and object in JSON, and of each text: what is left."""

FEWER_FILES = {"msprobe-atb": 3, "torchair-fx": 6, "torchair-ge": 6, "sglang": 5, "msit-torch-statistics": 5}
"""Of kinds that have a folder in a folder in a folder, or of whose files each takes long."""


def write_seeds(folder: Path, unpacked: Unpacked) -> list[str]:
    """Write all of them, and return which there are."""
    for kind, real in REAL_DUMPS.items():
        family, archive, *inside = real.split("/")
        most = FEWER_FILES.get(kind, MOST_FILES)
        cut_down(unpacked(f"{family}/{archive}").joinpath(*inside), folder / kind, most)
    atb_samples.write_dump(folder / "msit-atb", {1: atb_samples.PREFILL, 2: atb_samples.DECODE})
    write_titan(folder / "torchtitan")
    write_tensorrt(folder / "tensorrt-llm")
    write_graph(folder / "msprobe-vis", unpacked("engines/msprobe_vis") / "golden")
    write_plain(folder / "plain")
    write_containers(folder)
    write_mappings(folder / "mapping")
    write_rollouts(folder)
    write_archives(folder / "archive")
    return sorted(each.name for each in folder.iterdir())


def cut_down(source: Path, target: Path, most: int) -> None:
    """Copy a dump, and leave of everything in it the beginning."""
    if source.is_file():
        target.mkdir(parents=True)
        (target / source.name).write_bytes(cut_content(source))
        return
    target.mkdir(parents=True)
    entries = sorted(source.iterdir(), key=lambda entry: (entry.suffix != ".json", entry.name))
    for entry in entries[:most]:
        if entry.is_dir():
            cut_down(entry, target / entry.name, most)
        else:
            (target / entry.name).write_bytes(cut_content(entry))


def cut_content(file: Path) -> bytes:
    """Return the beginning of a text; other files as they are."""
    content = file.read_bytes()
    if file.suffix == ".json" and file.name != "golden.json":
        return json.dumps(_cut_value(json.loads(content))).encode()
    if file.suffix in (".log", ".csv", ".txt"):
        return b"\n".join(content.split(b"\n")[:MOST_LINES])
    return content


def _cut_value(value: Any) -> Any:  # noqa: ANN401 (any JSON)
    if isinstance(value, dict):
        return {key: _cut_value(value[key]) for key in list(value)[: MOST_ENTRIES * 2]}
    if isinstance(value, list):
        return list(map(_cut_value, value[:MOST_ENTRIES]))
    return value


def write_graph(folder: Path, real: Path) -> None:
    """Write a graph of msprobe that has few nodes."""
    folder.mkdir()
    file = folder / "build.vis.db"
    shutil.copyfile(next(real.iterdir()), file)
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        kept = "SELECT rowid FROM tb_nodes ORDER BY node_order LIMIT 12"
        database.execute(f"DELETE FROM tb_nodes WHERE rowid NOT IN ({kept})")  # noqa: S608 (ours)
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for table in tables - {"tb_nodes"}:
            database.execute(f"DELETE FROM {table} WHERE rowid > 5")  # noqa: S608 (ours)
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute("PRAGMA page_size = 1024")
        database.execute("VACUUM")


def write_plain(folder: Path) -> None:
    """Write a folder of tensors of every suffix."""
    (folder / "token0").mkdir(parents=True)
    np.save(folder / "token0" / "layers.0.attn.output.npy", np.ones((2, 3), "f4"))
    np.savez(folder / "token0" / "layers.0.mlp.npz", output=np.ones((2, 3), "f2"))
    torch.save(torch.ones(2, 3, dtype=torch.bfloat16), folder / "token0" / "layers.1.attn.input.0.pt")
    torch.save({"a": torch.ones(2), "b": [torch.ones(1)]}, folder / "token0" / "layers.1.mlp.pth")
    save_file({"weight": np.ones((2, 2), "f4")}, folder / "token0" / "layers.1.norm.safetensors")
    (folder / "token0" / "logits.bin").write_bytes(atb_samples.container(1, "2,2", bytes(8)))


def write_containers(folder: Path) -> None:
    """Write one file of each container."""
    arrays = {
        "a": np.arange(6, dtype="f4").reshape(2, 3),
        "b": np.arange(3, dtype="i8"),
        "c": np.ones((), "c8"),
    }
    for name, write in _containers(arrays):
        kind = folder / f"container-{name.replace('.', '-')}"
        kind.mkdir()
        write(kind / f"x.{name.rpartition('.')[2]}")


def _containers(arrays: dict[str, Any]) -> Iterator[tuple[str, Callable[[Path], object]]]:
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    state = {
        "state": tensors,
        "step": 3,
        "list": [torch.ones(2, 2).t(), "text"],
        "h": torch.ones(2, dtype=torch.float16),
    }
    yield "npy", lambda file: np.save(file, arrays["a"])
    yield "npz", lambda file: np.savez(file, **arrays)
    yield "packed.npz", lambda file: np.savez_compressed(file, **arrays)
    yield "pt", lambda file: torch.save(state, file)
    yield "legacy.pt", lambda file: torch.save(state, file, _use_new_zipfile_serialization=False)
    yield "parameter.pth", lambda file: torch.save(torch.nn.Linear(2, 3).state_dict(), file)
    yield (
        "sparse.pt",
        lambda file: torch.save({"a": torch.eye(3).to_sparse(), "b": tensors["a"].expand(4, 2, 3)}, file),
    )
    yield "safetensors", lambda file: save_file(arrays | {"c": np.ones(2, "f2")}, file, {"format": "pt"})
    yield "bin", lambda file: file.write_bytes(atb_samples.container(27, "2,3", bytes(12)) * 2)
    given = [torchair_samples.floats(2, 3), torchair_samples.floats(4, dtype="bfloat16")]
    yield "ge", lambda file: file.write_bytes(torchair_samples.ge_file(given, given[:1]))


MAPPINGS = {
    "layer.yaml": "TopLayer:\n  0.module: module\n\nMLP:\n  linear_fc1: gate_proj\n  linear_fc2: down_proj\n",
    "data.yaml": (
        "Functional.add.0.forward.output.0: Torch.add.0.forward.output.0\n"
        "A.b.0.forward.input.0: A.c.1.forward.input.0\n"
    ),
    "cell.yaml": "fc1.Dense: fc1.Linear\nnetwork: model\n",
    "api.yaml": (
        "- ms_api: Mint.x\n  pt_api: Torch.a\n  ms_args: [0, 1]\n  pt_args: [1, 0]\n"
        "  ms_output: [0]\n  pt_output: [0]\n"
    ),
    "op_mapping_file.json": '{"LinearOperation_outtensor0": ["Linear_output_0"], "Gate": "MLP"}',
    "view.yaml": (
        "- target: Module.qkv.Linear.forward.0.output.0\n  golden: [Module.q.Linear.forward.0.output.0,\n"
        "    Module.k.Linear.forward.0.output.0]\n  view: [concatenated]\n"
    ),
    "postprocess.yaml": (
        "right_matmul:\n  target_tensor_map:\n    rotation.npy:\n      - a.pt\n  golden_tensor_map: {}\n"
    ),
    "set.json": json.dumps(
        {
            "firstdrift_match_set": 1,
            "name": "renamed",
            "edits": [
                {"kind": "match", "golden": ["a", "b"], "target": ["c"], "descendants": True},
                {"kind": "match", "golden": ["d"], "target": ["e"], "descendants": False},
            ],
            "mappings": [
                {
                    "name": "x",
                    "kind": "cell_mapping",
                    "entries": [{"line": 1, "target": "a", "golden": ["b"]}],
                },
            ],
        }
    ),
}


def write_mappings(folder: Path) -> None:
    """Write one mapping file of each kind, and a match set."""
    folder.mkdir()
    for name, text in MAPPINGS.items():
        (folder / name).write_text(text)
    (folder / "odd.yaml").write_text("\n".join(f"a{at}: {piece}" for at, piece in enumerate(YAML[:12])))


def write_rollouts(folder: Path) -> None:
    """Write lines of a rollout as JSON, and as Parquet."""
    for name in ("rollout", "router"):
        lines = (ROLLOUTS / f"{name}.jsonl").read_text().splitlines()[:4]
        kind = folder / f"rollout-{name}"
        kind.mkdir()
        (kind / "1.jsonl").write_text("\n".join(lines))
    import pyarrow as pa
    from pyarrow import parquet

    rows = [json.loads(line) for line in (ROLLOUTS / "rollout.jsonl").read_text().splitlines()[:4]]
    (folder / "rollout-parquet").mkdir()
    parquet.write_table(pa.Table.from_pylist(rows), folder / "rollout-parquet" / "1.parquet")


def write_archives(folder: Path) -> None:
    """Write a dump as it is uploaded, packed in every way."""
    folder.mkdir()
    contents = {
        "run/dump.json": b'{"data": {}}',
        "run/a/b.npy": bytes(200),
        "run/empty": b"",
        "run/c.txt": b"x" * 3000,
    }
    for method, name in ((0, "stored"), (8, "packed")):
        with zipfile.ZipFile(folder / f"{name}.zip", "w", method) as archive:
            for path, content in contents.items():
                archive.writestr(path, content)
    for mode, name in (("w", "a.tar"), ("w:gz", "a.tgz"), ("w:xz", "a.txz"), ("w:bz2", "a.tbz")):
        with tarfile.open(folder / name, mode) as archive:  # type: ignore[call-overload] # one of the modes
            for path, content in contents.items():
                member = tarfile.TarInfo(path)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
            for kind, target in ((tarfile.SYMTYPE, "a/b.npy"), (tarfile.LNKTYPE, "run/c.txt")):
                member = tarfile.TarInfo(f"run/link{kind.decode()}")
                member.type, member.linkname = kind, target
                archive.addfile(member)
