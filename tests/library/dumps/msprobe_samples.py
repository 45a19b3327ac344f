"""Small msprobe dumps, written as the tool writes them."""

import json
from pathlib import Path
from typing import Any

HEADER = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}


def tensor(**changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the record of a tensor, as PyTorch writes it."""
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [2, 3],
        "Max": 1.5,
        "Min": -1.0,
        "Mean": 0.25,
        "Norm": 2.0,
        "requires_grad": True,
    } | changes


def module(*inputs: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the forward record of a module with these inputs."""
    return {"input_args": list(inputs), "input_kwargs": {}, "output": [tensor()], "parameters": {}}


def write_dump(
    folder: Path,
    data: dict[str, Any],
    construct: dict[str, Any] | None = None,
    stack: dict[str, Any] | None = None,
    **header: Any,  # noqa: ANN401
) -> Path:
    """Write the files of one slice."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "dump.json", HEADER | header | {"data": data})
    if construct is not None:
        write_json(folder / "construct.json", construct)
    if stack is not None:
        write_json(folder / "stack.json", stack)
    return folder


def write_json(file: Path, value: object) -> None:
    """Write a file as the tool does: bare NaN and Infinity, one space of indent."""
    file.write_text(json.dumps(value, indent=1), encoding="utf-8")
