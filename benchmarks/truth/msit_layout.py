"""Write what modules are given and give in the layout of msit: a folder for each token, a file for a tensor.

FOLDER/msit_dump_20261120_155326/torch_tensors/cpu_14498/model_tree.json
                                                         weights/root.lm_head.weight.pth
                                                         0/root.model.layers.0/input_0.pth

As msit's hooks do: keyword arguments are not written, nor is what is neither a tensor nor a list of such;
of a module that runs twice within a token, the later tensors stay, and the statistics of both.
"""

import csv
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

_COLUMNS: Final = (
    *("NodeName", "NodeType", "InputOutput", "Index", "DataType", "Shape"),
    *("Max", "Min", "Mean", "L2Norm"),
)
_MODE: Final = 0o640


@dataclass(frozen=True)
class Parts:
    """What of a run shall be written."""

    tensors: bool = True
    statistics: bool = False
    weights: bool = False


class Recorder:
    """Writes a run; its model is named root."""

    def __init__(self, folder: Path, parts: Parts) -> None:
        """Begin a dump in a folder of its own."""
        name = time.strftime("msit_dump_%Y%m%d_%H%M%S")
        self._place = folder / name / "torch_tensors" / f"cpu_{os.getpid()}"
        self._parts = parts
        self._token = -1

    def watch(self, model: nn.Module) -> None:
        """Write each forward pass of a model from now on."""
        self._place.mkdir(parents=True)
        if self._parts.weights:
            self._write_weights(model)
        (self._place / "model_tree.json").write_text(json.dumps(tree_of("root", model)), encoding="utf-8")
        model.register_forward_pre_hook(self._begin)
        for name, module in model.named_modules(prefix="root"):

            def seen(one: nn.Module, given: Any, result: Any, name: str = name) -> None:  # noqa: ANN401
                self._write(name, type(one).__name__, given, result)

            module.register_forward_hook(seen)

    def _begin(self, *_: object) -> None:
        self._token += 1

    def _write_weights(self, model: nn.Module) -> None:
        folder = self._place / "weights"
        folder.mkdir()
        for name, parameter in model.named_parameters():
            torch.save(parameter, folder / f"root.{name}.pth")

    def _write(self, name: str, kind: str, given: Any, result: Any) -> None:  # noqa: ANN401
        folder = self._place / str(self._token) / name
        folder.mkdir(parents=True, exist_ok=True)
        found = [*tensors_of("input", given), *tensors_of("output", result)]
        if self._parts.tensors:
            for stem, tensor in found:
                file = folder / f"{stem}.pth"
                torch.save(tensor.detach(), file)
                file.chmod(_MODE)
        if self._parts.statistics and found:
            _add_statistics(folder / "statistics.csv", [row_of(name, kind, *one) for one in found])


def tree_of(name: str, module: nn.Module) -> dict[str, Any]:
    """Return the tree of a module and those within it, by name and class."""
    inner = [tree_of(f"{name}.{own}", one) for own, one in module.named_children()]
    return {"name": name, "type": type(module).__name__, "children": inner}


def tensors_of(stem: str, value: Any) -> Iterator[tuple[str, Tensor]]:  # noqa: ANN401
    """Yield the tensors of what is a tensor, a list or a tuple, each with the stem of its file."""
    if isinstance(value, Tensor):
        yield stem, value
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from tensors_of(f"{stem}_{place}", inner)


def row_of(name: str, kind: str, stem: str, tensor: Tensor) -> list[Any]:
    """Return the row of statistics of a tensor."""
    last = stem.rpartition("_")[2]
    numbers = tensor.detach().float()
    told = [numbers.max(), numbers.min(), numbers.mean(), numbers.norm()] if numbers.numel() else []
    values = [one.item() for one in told] or [float("nan")] * 4
    place = "Input" if stem.startswith("input") else "Output"
    index = int(last) if last.isdigit() else 0
    return [name, kind, place, index, str(tensor.dtype), str(tuple(tensor.shape)), *values]


def _add_statistics(file: Path, rows: list[list[Any]]) -> None:
    is_new = not file.exists()
    with file.open("a", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        if is_new:
            writer.writerow(_COLUMNS)
        writer.writerows(rows)
    file.chmod(_MODE)
