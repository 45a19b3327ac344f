"""Match what mapping files say.

0.module.module.decoder.layers.3.mlp.linear_fc2        target path
└ Float16Module  └ GPTModel    └ TransformerLayer      classes of the modules along it: each says
module  .model  .layers.3.mlp.down_proj                what the next part is called in the golden dump
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from msgspec import Struct, field

from firstdrift.matching.fused.find_fused import complete_join, join_operators
from firstdrift.matching.manual.mapping import TOP_LAYER, MappingEntry, MappingFile, MappingKind, split_item
from firstdrift.matching.pairing import Pairing
from firstdrift.matching.plan import Messages, Origin
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.tree import SliceTree, call_key, holds_gradients, is_operator
from firstdrift.model.node import Direction, Node
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

_OUTPUT: Final = re.compile(r"(?P<type>.+?)_(?:outtensor|output_?)(?P<number>[0-9]{1,9})")
"""msit's way to name one output of a type: "RmsNormOperation_outtensor0", "Linear_output_0"."""

_NUMBER: Final = re.compile(r"(?:^|[._])([0-9]{1,18})(?=[._]|$)")


def apply_mappings(work: Pairing) -> Messages:
    """Match what the mapping files of the rules say; return a note on each entry that matched nothing.

    The first file that says something of a node decides; backward nodes follow their forward nodes.
    """
    return tuple(chain.from_iterable(_APPLY[mapping.kind](work, mapping) for mapping in work.rules.mappings))


class _Applied(Struct):
    """Matches what a file says, and keeps what became of each entry."""

    work: Pairing
    mapping: MappingFile
    used: set[MappingEntry] = field(default_factory=set)
    failures: dict[MappingEntry, Message] = field(default_factory=dict)

    def match(self, pair: Pair, entries: Sequence[MappingEntry]) -> None:
        """Record that two nodes are the same, unless another rule of the files said otherwise of one."""
        *_, entry = entries
        if self.work.is_free(pair):
            self._add(pair, self.mapping.name_entry(entry))
        if pair[1] in self.work.found and pair[0] in self.work.partners:
            self.used.update(entries)
        else:
            self.fail(entry, Message.of("matching.mapping.matched_otherwise"))

    def _add(self, pair: Pair, reason: Message) -> None:
        work = self.work
        join = complete_join(work, self._modules_of(pair), Origin.MAPPING, reason)
        if join is not None:
            work.add_join(join)
            join_operators(work, join)
        if pair[1] not in work.found:
            work.add_sure(pair, Origin.MAPPING, (reason,))

    def name_tensors(self, pair: Pair, golden: str | None, target: str | None) -> None:
        """Record which golden tensor of a match a target tensor is, where their labels differ."""
        if golden is not None and target is not None and golden != target:
            self.work.said_tensors.setdefault(pair, {})[target] = golden

    def _modules_of(self, pair: Pair) -> Pair:
        """Return the modules that run two operators, which may have been fused; modules stay as they are."""
        work = self.work
        around = work.golden.parents[pair[0]], work.target.parents[pair[1]]
        have_modules = around[0] != work.golden.root and around[1] != work.target.root
        return around if have_modules and is_operator(work.target.nodes[pair[1]]) else pair

    def fail(self, entry: MappingEntry, why: Message) -> None:
        """Remember why an entry did not match a node."""
        self.failures.setdefault(entry, why)

    def notes(self, why_never: Callable[[MappingEntry], Message]) -> Iterator[Message]:
        """Say of each entry that matched nothing why not."""
        for entry in self.mapping.entries:
            if entry in self.used:
                continue
            if not self.mapping.may_quote:
                yield Message.of("matching.mapping.unused_line", file=self.mapping.name, line=entry.line)
            else:
                why = self.failures.get(entry) or why_never(entry)
                entry_name = self.mapping.name_entry(entry)
                yield Message.of("matching.mapping.unused", entry=entry_name, why=why)


def _apply_layers(work: Pairing, mapping: MappingFile) -> Iterable[Message]:
    applied = _Applied(work, mapping)
    walker = _Walker(mapping, work.target)
    golden = {call_key(node): index for index, node in _modules(work.golden)}
    # From the outside in, so that a note names the outermost module that is missing.
    for index, node in sorted(_modules(work.target), key=lambda module: module[1].path.count(".")):
        path, entries = walker.translate(node.path)
        if not entries:
            continue
        partner = golden.get((node.kind, path, node.call))
        if partner is None:
            applied.fail(entries[-1], Message.of("matching.mapping.no_golden_module", path=path))
        else:
            applied.match((partner, index), entries)

    def why_never(entry: MappingEntry) -> Message:
        if entry.scope != TOP_LAYER and entry.scope not in walker.class_of.values():
            return Message.of("matching.mapping.no_target_class", scope=entry.scope)
        return Message.of("matching.mapping.no_target_path", scope=entry.scope)

    return applied.notes(why_never)


class _Walker:
    """Translates target paths into golden ones, level by level, by what is said of the class reached."""

    def __init__(self, mapping: MappingFile, target: SliceTree) -> None:
        self.class_of = {node.path: node.type_name for _, node in _modules(target)}
        self._sections: defaultdict[str, dict[tuple[str, ...], MappingEntry]] = defaultdict(dict)
        for entry in mapping.entries:
            self._sections[entry.scope][tuple(entry.target.split("."))] = entry

    def translate(self, path: str) -> tuple[str, list[MappingEntry]]:
        """Return the golden path, and the entries that were used, outermost first."""
        parts = tuple(path.split("."))
        golden: list[str] = []
        used: list[MappingEntry] = []
        scope, at = TOP_LAYER, 0
        while at < len(parts):
            entry = self._longest(scope, parts[at:])
            if entry is None:
                golden.append(parts[at])
                at += 1
            else:
                golden += entry.golden
                used.append(entry)
                at += entry.target.count(".") + 1
            scope = self.class_of.get(".".join(parts[:at]), "")
        return ".".join(golden), used

    def _longest(self, scope: str, parts: tuple[str, ...]) -> MappingEntry | None:
        section = self._sections.get(scope)
        if not section:
            return None
        found = (section.get(parts[:length]) for length in range(len(parts), 0, -1))
        return next((entry for entry in found if entry is not None), None)


def _apply_cells(work: Pairing, mapping: MappingFile) -> Iterable[Message]:
    applied = _Applied(work, mapping)
    golden = {(_cell(node), node.direction, node.call): index for index, node in _forward(work.golden)}
    whole = {entry.target: entry for entry in mapping.entries}
    for index, node in _forward(work.target):
        name = _cell(node)
        if name in whole:
            entries, golden_name = [whole[name]], whole[name].golden[0]
        else:
            entries, golden_name = [], name
            for entry in mapping.entries:
                if entry.target in golden_name:
                    entries.append(entry)
                    golden_name = golden_name.replace(entry.target, entry.golden[0], 1)
        if not entries:
            continue
        partner = golden.get((golden_name, node.direction, node.call))
        if partner is None:
            for entry in entries:
                applied.fail(entry, _absent("golden", golden_name))
        else:
            applied.match((partner, index), entries)
    return applied.notes(lambda entry: Message.of("matching.mapping.no_target_name", name=entry.target))


def _cell(node: Node) -> str:
    """Return how a cell mapping calls a node: a module by path and class, an operator without its library."""
    if is_operator(node):
        return f"{node.path.partition('.')[2]}.{node.call}"
    return f"{node.path}.{node.type_name}"


def _apply_items(work: Pairing, mapping: MappingFile) -> Iterable[Message]:
    applied = _Applied(work, mapping)
    golden = {node.name: index for index, node in enumerate(work.golden.nodes)}
    target = {node.name: index for index, node in enumerate(work.target.nodes)}
    for entry in mapping.entries:
        items = {"target": split_item(entry.target), "golden": split_item(entry.golden[0])}
        (golden_node, golden_label), (target_node, target_label) = items["golden"], items["target"]
        nodes = {
            "target": work.target.nodes[target[target_node]] if target_node in target else None,
            "golden": work.golden.nodes[golden[golden_node]] if golden_node in golden else None,
        }
        why = next(_missing(items, nodes), None)
        if why is not None:
            applied.fail(entry, why)
            continue
        pair = golden[golden_node], target[target_node]
        if work.is_free(pair):
            applied.match(pair, (entry,))
        match = work.found.get(pair[1])
        if match is None or match.golden != pair[0]:
            applied.fail(entry, Message.of("matching.mapping.said_otherwise"))
        else:
            applied.used.add(entry)
            applied.name_tensors(pair, golden_label, target_label)
    return applied.notes(lambda _: Message.of("matching.mapping.not_reached"))


def _missing(
    items: Mapping[str, tuple[str, str | None]], nodes: Mapping[str, Node | None]
) -> Iterator[Message]:
    """Say which of the nodes that an entry names are not there, and which tensors of those that are."""
    for side, node in nodes.items():
        if node is None:
            yield _absent(side, items[side][0])
    for side, node in nodes.items():
        name, label = items[side]
        if node is not None and label is not None and label not in {each.label for each in node.tensors}:
            yield Message.of("matching.mapping.no_tensor", node=name, tensor=label)


def _absent(side: str, name: str) -> Message:
    return Message.of("matching.mapping.absent", side=side_named(side), name=name)


def _apply_types(work: Pairing, mapping: MappingFile) -> Iterable[Message]:
    applied = _Applied(work, mapping)
    golden, target = _by_type(work.golden), _by_type(work.target)
    for entry in mapping.entries:
        target_type, target_output = _split_type(entry.target)
        for golden_type, golden_output in map(_split_type, entry.golden):
            partners = golden.get(golden_type, {})
            for layer, nodes in target.get(target_type, {}).items():
                others = partners.get(layer, [])
                if len(nodes) != len(others):
                    counts = {"target": len(nodes), "golden": len(others), "layer": layer}
                    types = {"target_type": target_type, "golden_type": golden_type}
                    which = "matching.mapping.other_counts" + ("_outside" if layer is None else "")
                    applied.fail(entry, Message.of(which, **counts, **types))
                    continue
                for pair in zip(others, nodes, strict=True):
                    applied.match(pair, (entry,))
                    applied.name_tensors(pair, golden_output, target_output)
    return applied.notes(lambda entry: _absent("target", _split_type(entry.target)[0]))


def _split_type(said: str) -> tuple[str, str | None]:
    found = _OUTPUT.fullmatch(said)
    return (found["type"], f"output.{int(found['number'])}") if found else (said, None)


def _by_type(tree: SliceTree) -> dict[str, dict[int | None, list[int]]]:
    """Return the forward nodes of each type, by the number of the layer they are in."""
    found: defaultdict[str, defaultdict[int | None, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, node in _forward(tree):
        found[node.type_name.rpartition(".")[2]][_layer(tree, index)].append(index)
    return {name: dict(layers) for name, layers in found.items()}


def _layer(tree: SliceTree, index: int) -> int | None:
    """Return the first number in the path of a node or of the innermost module around it."""
    while index != tree.root:
        if not is_operator(tree.nodes[index]):
            number = _NUMBER.search(tree.nodes[index].path)
            return int(number[1]) if number else None
        index = tree.parents[index]
    return None


def _modules(tree: SliceTree) -> Iterator[tuple[int, Node]]:
    """Yield the modules whose forward pass was recorded, and the others by what was."""
    for index, node in enumerate(tree.nodes):
        if is_operator(node) or holds_gradients(node):
            continue
        if node.direction is not Direction.BACKWARD or call_key(node) not in tree.forward_calls:
            yield index, node


def _forward(tree: SliceTree) -> Iterator[tuple[int, Node]]:
    for index, node in enumerate(tree.nodes):
        if node.direction is not Direction.BACKWARD and not holds_gradients(node):
            yield index, node


_APPLY: Final[dict[MappingKind, Callable[[Pairing, MappingFile], Iterable[Message]]]] = {
    MappingKind.LAYER: _apply_layers,
    MappingKind.DATA: _apply_items,
    MappingKind.CELL: _apply_cells,
    MappingKind.OPERATOR: _apply_types,
}
