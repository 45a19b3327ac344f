"""Small ATB dumps, written as the tools write them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

TENSORS = "msit_dump_1/tensors/0_42"
MODELS = "msit_dump_1/model/42"
MSPROBE_DATA = "atb_dump_data/data/0_42"
PREFILL = ("0_Embedding", "1_Prefill_layer", "2_LmHead")
DECODE = ("3_Embedding", "4_Decoder_layer", "5_LmHead")


def container(code: int, dims: str, values: bytes, **changes: str) -> bytes:
    """Return a file of one tensor; `object_Count="0"` changes the field `$Object.Count`."""
    fields = {
        "$Version": "1.0",
        "$Object.Count": "1",
        "$Object.Length": str(len(values)),
        "format": "2",
        "dtype": str(code),
        "dims": dims,
        "$Object.data": f"0,{len(values)}",
    }
    fields |= {name.replace("object_", "$Object."): value for name, value in changes.items()}
    return "".join(f"{name}={value}\n" for name, value in fields.items()).encode() + b"$End=1\n" + values


def description(dims: str = "6,32", **changes: str) -> bytes:
    """Return a file without values."""
    text = container(27, dims, b"", object_Count="0", **changes)
    return text.replace(b"$Object.data=0,0\n", b"")


def numbers(*values: float) -> bytes:
    """Return a file of float32 numbers."""
    return container(0, str(len(values)), np.array(values, "f4").tobytes())


def write(file: Path, data: bytes | str) -> Path:
    """Write a file and the folders around it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    return file


def write_run(run: Path, operations: Iterable[str]) -> None:
    """Write a numbered folder: each operation with output 0, whose only number is its running number."""
    for operation in operations:
        order = float(operation.partition("_")[0])
        write(run / operation / "after/outtensor0.bin", numbers(order))


def model(name: str, *operations: str, **inner: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the topology of a model of the operations "3_Embedding", …, and of those in some of them."""
    return {
        "modelName": name,
        "nodes": [
            {
                "opName": f"{type_name}_{order}",
                "opType": type_name,
                "param": "",
                "nodes": inner.get(type_name, []),
            }
            for order, _, type_name in (operation.partition("_") for operation in operations)
        ],
    }


def write_models(folder: Path, *models: dict[str, Any]) -> None:
    """Write the topologies of models."""
    for one in models:
        write(folder / f"{one['modelName']}.json", json.dumps(one))


def write_dump(root: Path, runs: dict[int, Iterable[str]]) -> Path:
    """Write a dump of a prefill and a decode model of three operations each."""
    write_models(root / MODELS, model("Prefill", *PREFILL), model("Decode", *DECODE))
    for number, operations in runs.items():
        write_run(root / TENSORS / str(number), operations)
    return root
