"""What a person says of tensors is compared and shown, or refused with a reason, in runs of any kind."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from firstdrift.dumps.detect import open_dump
from firstdrift.matching.manual.mapping import MappingEntry, MappingFile, MappingKind, split_item
from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import MatchingRules, SlicePlan
from firstdrift.matching.tensors import BY_MAPPING
from firstdrift.model.node import Node
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.parallel.slices import read_slice
from firstdrift.wording.message import Message

Unpack = Callable[[str], Path]

PAIRS = [
    "implementations/llama_healthy",
    "implementations/llama_gradients",
    "implementations/neox_healthy",
    "implementations/vit_healthy",
    "msprobe/qwen2_layermap_stat_mix",
    "msprobe/llama_tensor_mix_perturb",
    "msprobe/mixtral_stat_mix_perturb",
]


class Said(Struct, frozen=True):
    """That a golden tensor is a target tensor: the nodes, the labels, and the names of both."""

    golden: tuple[str, str]
    target: tuple[str, str]
    names: tuple[str, str]


def read(folder: Path) -> Slice:
    dump = open_dump(folder)
    return read_slice(dump, dump.slices[0])


def sides(unpacked: Unpack, name: str) -> tuple[Slice, Slice]:
    folder = unpacked(name)
    return read(folder / "golden"), read(folder / "target")


def name_of(node: Node, record: TensorRecord) -> str:
    role = "parameters" if record.role is Role.PARAMETER else record.role.value
    return f"{node.name}.{role}.{record.key}"


def matched(golden: Slice, target: Slice, said: list[Said]) -> SlicePlan:
    entries = tuple(
        MappingEntry(line, one.names[1], (one.names[0],)) for line, one in enumerate(said, start=1)
    )
    mapping = MappingFile("said.yaml", MappingKind.DATA, entries)
    return match_slices(golden, target, MatchingRules(mappings=(mapping,)))


def anything(plan: SlicePlan, golden: Slice, target: Slice, seed: int) -> Iterator[Said]:
    """Say of any tensor of each matched node that it is any tensor of the other."""
    draw = random.Random(seed)  # noqa: S311
    nodes = [{node.name: node for node in side.nodes} for side in (golden, target)]
    for match in plan.matches:
        for first, second in (
            (nodes[0][own], nodes[1][other]) for own in match.golden for other in match.target
        ):
            if first.tensors and second.tensors:
                records = draw.choice(first.tensors), draw.choice(second.tensors)
                names = name_of(first, records[0]), name_of(second, records[1])
                places = (first.name, records[0].label), (second.name, records[1].label)
                if tuple(map(split_item, names)) == places:
                    yield Said(*places, names)


def lines_of_notes(plan: SlicePlan) -> set[object]:
    entries = (note.arguments.get("entry") for note in plan.notes)
    return {entry.arguments["line"] for entry in entries if isinstance(entry, Message)}


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_that_is_said_is_shown_or_refused(unpacked: Unpack, name: str) -> None:
    golden, target = sides(unpacked, name)
    said = list(anything(match_slices(golden, target, MatchingRules()), golden, target, seed=1))
    plan = matched(golden, target, said)
    matches = {
        (own, other): at for at, one in enumerate(plan.matches) for own in one.golden for other in one.target
    }
    shown = {(pair.match, pair.golden.label, pair.target.label) for pair in plan.pairs}
    refused = lines_of_notes(plan)
    assert said
    for line, one in enumerate(said, start=1):
        match = matches.get((one.golden[0], one.target[0]), -1)
        assert line in refused or (match, one.golden[1], one.target[1]) in shown, one


def test_operators_of_two_implementations_are_compared_where_a_person_says_so(unpacked: Unpack) -> None:
    """Their query and key lie in another order, and so nobody else would hold them against each other."""
    golden, target = sides(unpacked, "implementations/llama_wo")
    node, other = "Torch.matmul.0.forward", "Tensor.__matmul__.0.forward"
    names = f"{node}.output.0", f"{other}.output.0"
    unsaid = match_slices(golden, target, MatchingRules())
    said = matched(golden, target, [Said((node, "output.0"), (other, "output.0"), names)])
    pairs = [
        next(pair for pair in plan.pairs if pair.golden_node == node and pair.golden.label == "output.0")
        for plan in (unsaid, said)
    ]
    assert [pair.incomparable is None for pair in pairs] == [False, True]
    assert BY_MAPPING in pairs[1].transform


@pytest.mark.parametrize("part", ["gate_proj", "up_proj"])
def test_a_part_that_is_said_to_be_a_whole_brings_the_other_parts_with_it(
    unpacked: Unpack, part: str
) -> None:
    golden, target = sides(unpacked, "msprobe/qwen2_layermap_stat_mix")
    parts = [f"Module.module.model.layers.1.mlp.{name}.Linear.forward.0" for name in ("gate_proj", "up_proj")]
    whole = next(node.name for node in target.nodes if "layers.1.mlp.linear_fc1" in node.name)
    own = next(name for name in parts if part in name)
    plan = matched(
        golden,
        target,
        [Said((own, "output.0"), (whole, "output.0"), (f"{own}.output.0", f"{whole}.output.0"))],
    )
    assert (tuple(parts), (whole,)) in {(match.golden, match.target) for match in plan.matches}
    assert plan.notes == ()
