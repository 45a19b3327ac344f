"""Two small dumps as msprobe writes them: of a MindSpore model, and of the same model in PyTorch.

They have the names that upstream's own tests of layer mappings use: modules called otherwise, operators of
other libraries and names, operators that one side alone runs, and a backward pass.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LAYER_MAPPING = """\
TopLayer:
  network_with_loss: module

ParallelTransformerLayer:
  attention: self_attention

ParallelAttention:
  flash_attention_score: npu_fusion_attention

FusedRMSNorm:
  RmsNorm: npu_rms_norm

VocabParallelEmbedding:
  logical_or: __or__
"""

_CELL, _MODULE = "Cell.network_with_loss.module.language_model", "Module.module.module.language_model"
_LAYER = "encoder.layers.0"
_EMBEDDING = "embedding.word_embeddings.VocabParallelEmbedding.forward.0"
_ATTENTION = "ParallelAttention.forward.0"

_WORDS_OF_ATTENTION = {
    "attn_mask": (4, 4),
    "scalar_value": 0.35,
    "pre_tokens": 64,
    "next_tokens": 0,
    "input_layout": "SBH",
}

Sizes = Sequence[tuple[int, ...] | int | float | bool | str]


def write_both(folder: Path, unrecorded: tuple[str, ...] = ()) -> tuple[Path, Path]:
    """Write both dumps; return the golden one (PyTorch) and the target one (MindSpore).

    Of nodes whose names end in what is unrecorded there is nothing but what the others say of where they are.
    """
    target, golden = folder / "mindspore", folder / "pytorch"
    layer, attention = f"{_CELL}.{_LAYER}.ParallelTransformerLayer", f"{_CELL}.{_LAYER}.attention"
    norm = f"{_CELL}.{_LAYER}.input_norm.FusedRMSNorm"
    _write(
        target,
        "mindspore",
        [
            ("Tensor.__add__.0.forward", None, [(2, 4), (2, 4)], [(2, 4)], {}),
            ("Tensor.__bool__.1.forward", None, [(1,)], [True], {}),
            ("Mint.logical_or.0.forward", f"{_CELL}.{_EMBEDDING}", [(4, 2), (4, 2)], [(4, 2)], {}),
            ("Tensor.__add__.1.forward", f"{_CELL}.{_EMBEDDING}", [(4, 2), (4, 2)], [(4, 2)], {}),
            (
                "Distributed.all_reduce.0.forward",
                f"{_CELL}.{_EMBEDDING}",
                [(4, 2, 8)],
                [(4, 2, 8), 0],
                {"group": "tp-0-1"},
            ),
            (f"{_CELL}.{_EMBEDDING}", None, [(4, 2)], [(4, 2, 8)], {}),
            (
                "Primitive.norm.RmsNorm.0.forward",
                f"{norm}.forward.0",
                [(4, 2, 8), (8,)],
                [(4, 2, 8), (4, 2, 1)],
                {},
            ),
            (f"{norm}.forward.0", f"{layer}.forward.0", [(4, 2, 8)], [(4, 2, 8)], {}),
            ("Mint.cos.0.forward", f"{attention}.{_ATTENTION}", [(4, 1, 1, 4)], [(4, 1, 1, 4)], {}),
            (
                "Functional.flash_attention_score.0.forward",
                f"{attention}.{_ATTENTION}",
                [(4, 2, 8), (4, 2, 8), (4, 2, 8), 2],
                [(4, 2, 8)],
                _WORDS_OF_ATTENTION,
            ),
            (f"{attention}.{_ATTENTION}", f"{layer}.forward.0", [], [(4, 2, 8), (8,)], {}),
            (f"{layer}.forward.0", None, [(4, 2, 8)], [(4, 2, 8)], {}),
            (f"{norm}.backward.0", f"{layer}.backward.0", [(4, 2, 8)], [(4, 2, 8)], {}),
            (
                "Functional.flash_attention_score.0.backward",
                f"{attention}.ParallelAttention.backward.0",
                [(4, 2, 8)],
                [(4, 2, 8), (4, 2, 8), (4, 2, 8), (4, 4)],
                {},
            ),
        ],
        unrecorded,
    )
    layer, attention = f"{_MODULE}.{_LAYER}.ParallelTransformerLayer", f"{_MODULE}.{_LAYER}.self_attention"
    norm = f"{_MODULE}.{_LAYER}.input_norm.FusedRMSNorm"
    _write(
        golden,
        "pytorch",
        [
            ("Tensor.__or__.0.forward", f"{_MODULE}.{_EMBEDDING}", [(4, 2), (4, 2)], [(4, 2)], {}),
            ("Tensor.__add__.0.forward", f"{_MODULE}.{_EMBEDDING}", [(4, 2), (4, 2)], [(4, 2)], {}),
            (
                "Distributed.all_reduce.0.forward",
                f"{_MODULE}.{_EMBEDDING}",
                [(4, 2, 8)],
                [(4, 2, 8), 0],
                {"group": "tp-0-1"},
            ),
            (f"{_MODULE}.{_EMBEDDING}", None, [(4, 2)], [(4, 2, 8)], {}),
            (
                "NPU.npu_rms_norm.0.forward",
                f"{norm}.forward.0",
                [(4, 2, 8), (8,)],
                [(4, 2, 8), (4, 2, 1)],
                {},
            ),
            (f"{norm}.forward.0", f"{layer}.forward.0", [(4, 2, 8)], [(4, 2, 8)], {}),
            ("Torch.cos.0.forward", f"{attention}.{_ATTENTION}", [(4, 1, 1, 4)], [(4, 1, 1, 4)], {}),
            (
                "NPU.npu_fusion_attention.0.forward",
                f"{attention}.{_ATTENTION}",
                [(4, 2, 8), (4, 2, 8), (4, 2, 8), 2],
                [(4, 2, 8)],
                {"atten_mask": (4, 4), "scale": 0.35, "pre_tockens": 64, "next_tockens": 0},
            ),
            (f"{attention}.{_ATTENTION}", f"{layer}.forward.0", [], [(4, 2, 8), (8,)], {}),
            (f"{layer}.forward.0", None, [(4, 2, 8)], [(4, 2, 8)], {}),
            (
                "NPU.npu_fusion_attention.0.backward",
                f"{attention}.ParallelAttention.backward.0",
                [(4, 2, 8)],
                [(4, 2, 8), (4, 2, 8), (4, 2, 8), (4, 4)],
                {},
            ),
        ],
        unrecorded,
    )
    return golden, target


Record = tuple[str, str | None, Sizes, Sizes, Mapping[str, Any]]
"""Name of a node, name of the module around it, its inputs, outputs and keyword arguments."""


def _write(folder: Path, framework: str, records: Sequence[Record], unrecorded: tuple[str, ...]) -> None:
    folder.mkdir()
    data = {
        name: _record(name, inputs, outputs, words)
        for name, _, inputs, outputs, words in records
        if not name.endswith(unrecorded)
    }
    whole = {
        "task": "statistics",
        "level": "mix",
        "framework": framework,
        "dump_data_dir": None,
        "data": data,
    }
    around = {name: parent for name, parent, *_ in records}
    (folder / "dump.json").write_text(json.dumps(whole))
    (folder / "construct.json").write_text(json.dumps(around))
    (folder / "stack.json").write_text(
        json.dumps({name: ["File model.py, line 1, in forward,"] for name in data})
    )


def _record(name: str, inputs: Sizes, outputs: Sizes, words: Mapping[str, Any]) -> dict[str, Any]:
    if ".backward" in name:
        return {"input": list(map(_value, inputs)), "output": list(map(_value, outputs))}
    return {
        "input_args": list(map(_value, inputs)),
        "input_kwargs": {key: _value(word) for key, word in words.items()},
        "output": list(map(_value, outputs)),
    }


def _value(of: tuple[int, ...] | float | bool | str) -> dict[str, Any]:
    if not isinstance(of, tuple):
        return {"type": type(of).__name__, "value": of}
    numbers = {"Max": 1.0, "Min": -1.0, "Mean": 0.0, "Norm": 2.0}
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": list(of),
        **numbers,
        "requires_grad": False,
    }
