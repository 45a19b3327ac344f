"""A vocabulary that one run made larger: embedding, head and logits are compared in what both have of it.

    golden   embedding [67, 32]   head [67, 32]   logits [2, 7, 67]
    target   embedding [80, 32]   head [80, 32]   logits [2, 7, 80]

A real pair of runs, in a copy of which every tensor of the vocabulary is made larger.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor

from firstdrift import Report, compare
from firstdrift.comparison.exit_status import exit_status
from firstdrift.matching.implementations.views import seen
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.verdict.judgement import NodeClass

Change: TypeAlias = Callable[[Tensor], Tensor]

WORDS, PADDED = 67, 80
HEAD, EMBEDDING = "Module.output.Linear.forward.0", "Module.tok_embeddings.Embedding.forward.0"
GOLDEN = {HEAD: "Module.lm_head.Linear.forward.0", EMBEDDING: "Module.model.embed_tokens.Embedding.forward.0"}


def tensors_of(entry: object) -> Iterator[dict[str, Any]]:
    """Yield the tensors that an entry of a dump names."""
    if isinstance(entry, dict) and "data_name" in entry:
        yield entry
    elif isinstance(entry, dict | list):
        for inner in entry.values() if isinstance(entry, dict) else entry:
            yield from tensors_of(inner)


def made_larger(run: Path, changes: Mapping[str, Change]) -> None:
    """Make the vocabulary of a run larger, and change some tensors then."""
    (index,) = run.rglob("dump.json")
    dump = json.loads(index.read_text())
    for record in tensors_of(dump["data"]):
        file = index.parent / "dump_tensor_data" / record["data_name"]
        if WORDS not in record["shape"] and file.stem not in changes:
            continue
        values = torch.load(file)
        if WORDS in values.shape:
            axis = values.shape.index(WORDS)
            pad = list(values.shape)
            pad[axis] = PADDED - WORDS
            values = torch.cat([values, torch.full(pad, 9.0)], axis)
        values = changes.get(file.stem, torch.clone)(values)
        torch.save(values, file)
        record |= {"shape": list(values.shape), "Norm": values.norm().item(), "Mean": values.mean().item()}
        record |= {"Max": values.max().item(), "Min": values.min().item()}
    index.write_text(json.dumps(dump))


def times(factor: float, words: slice = slice(None), axis: int = 0) -> Change:
    """Multiply what a tensor has for some words by a factor."""

    def changed(values: Tensor) -> Tensor:
        values = values.clone()
        values.movedim(axis, 0)[words] *= factor
        return values

    return changed


@pytest.fixture
def compared(unpacked: Callable[[str], Path], tmp_path: Path) -> Callable[..., Report]:
    """Return a function that compares the runs, with the vocabulary of the target made larger."""

    def run(changes: Mapping[str, Change], *, reverse: bool = False) -> Report:
        pair, larger = unpacked("implementations/latent_healthy"), tmp_path / "larger"
        shutil.copytree(pair / "target", larger)
        made_larger(larger, changes)
        sides = pair / "golden", larger
        return compare(*(sides[::-1] if reverse else sides))

    return run


@pytest.mark.parametrize("reverse", [False, True])
def test_what_both_have_of_a_vocabulary_is_compared(compared: Callable[..., Report], reverse: bool) -> None:
    report = compared({}, reverse=reverse)
    coverage = report.findings.coverage
    assert exit_status(report) == 0
    assert coverage is not None
    assert coverage.compared_outputs == coverage.outputs == 1
    views = {
        (pair.target_node if reverse else pair.golden_node, pair.golden.label)
        for pair in report.slices[0].plan.pairs
        if pair.incomparable is None and "matching.transform.first_of" in {one.id for one in pair.transform}
    }
    assert views == {
        (GOLDEN[EMBEDDING], "parameter.weight"),
        (GOLDEN[HEAD], "parameter.weight"),
        (GOLDEN[HEAD], "output.0"),
    }


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("changes", "node", "node_class"),
    [
        (
            {f"{HEAD}.parameters.weight": times(1.3), f"{HEAD}.output.0": times(1.3, axis=-1)},
            HEAD,
            NodeClass.WEIGHTS_DIFFER,
        ),
        ({f"{HEAD}.output.0": times(1.3, slice(WORDS - 1, WORDS), -1)}, HEAD, NodeClass.SOURCE),
        (
            {f"{EMBEDDING}.parameters.weight": times(1.3), f"{EMBEDDING}.output.0": times(1.3)},
            EMBEDDING,
            NodeClass.WEIGHTS_DIFFER,
        ),
    ],
    ids=["head", "the last word that both have", "embedding"],
)
def test_a_fault_in_what_both_have_is_named(
    compared: Callable[..., Report],
    changes: Mapping[str, Change],
    node: str,
    node_class: NodeClass,
    reverse: bool,
) -> None:
    found = compared(changes, reverse=reverse).findings.first_bad_node
    assert found is not None
    assert ((found.target, found.golden) if reverse else (found.golden, found.target)) == (GOLDEN[node], node)
    assert found.node_class is node_class


def test_what_only_one_has_of_a_vocabulary_is_no_fault(compared: Callable[..., Report]) -> None:
    filled = slice(WORDS, None)
    changes = {
        f"{EMBEDDING}.parameters.weight": times(-50.0, filled),
        f"{HEAD}.parameters.weight": times(-50.0, filled),
        f"{HEAD}.output.0": times(-50.0, filled, -1),
    }
    assert exit_status(compared(changes)) == 0


@pytest.mark.parametrize(
    ("golden", "target"),
    [((4, 6), (8, 6)), ((4, 6), (5, 7)), ((2, 4, 6), (2, 5, 6)), ((4, 6), (5, 6))],
    ids=["twice as many", "another width", "not the last dimension", "no values"],
)
def test_other_sizes_are_no_larger_vocabulary(golden: tuple[int, ...], target: tuple[int, ...]) -> None:
    records = [TensorRecord(Role.PARAMETER, "weight", "float32", shape) for shape in (golden, target)]
    assert seen(*records, of_vocabulary=True) is None
