"""Match what mapping files say.

0.module.module.decoder.layers.3.mlp.linear_fc2        target path
└ Float16Module  └ GPTModel    └ TransformerLayer      classes of the modules along it: each says
module  .model  .layers.3.mlp.down_proj                what the next part is called in the golden dump

The next part may be an operator that runs in the module: the calls of both are matched in order.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final, TypeAlias

from firstdrift.groups import firsts, grouped, known, seconds
from firstdrift.matching.manual.applied import Applied
from firstdrift.matching.manual.mapping import (
    TOP_LAYER,
    MappingEntry,
    MappingFile,
    MappingKind,
    split_item,
    split_tensor,
)
from firstdrift.matching.pairing import Pairing, SaidView
from firstdrift.matching.plan import Messages
from firstdrift.matching.structure.sequence_alignment import Pair
from firstdrift.matching.tree import (
    FORWARD_PASS,
    SliceTree,
    call_key,
    holds_gradients,
    indexes_by_name,
    is_operator,
    pass_of,
)
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
    return tuple(chain.from_iterable(_apply(work, mapping) for mapping in work.rules.mappings))


def _apply(work: Pairing, mapping: MappingFile) -> Iterable[Message]:
    if not mapping.entries:
        return (Message.of("matching.mapping.says_nothing", file=mapping.name),)
    return _APPLY[mapping.kind](work, mapping)


def _apply_layers(work: Pairing, mapping: MappingFile) -> Iterable[Message]:
    applied = Applied(work, mapping)
    walker = _Walker(mapping, work.target)
    # Of a call that was run again, the first run counts.
    golden = {call_key(node): index for index, node in reversed([*_modules(work.golden)])}
    # From the outside in, so that a note names the outermost module that is missing.
    for index, node in sorted(_modules(work.target), key=lambda module: module[1].path.count(".")):
        path, entries = walker.translate(node.path)
        partner = golden.get((node.kind, path, node.call))
        if not entries:
            continue
        if partner is None:
            applied.fail(entries[-1], Message.of("matching.mapping.no_golden_module", path=path))
        else:
            applied.match((partner, index), entries)
    _apply_to_operators(applied, walker)
    return applied.notes(walker.why_never)


def _apply_to_operators(applied: Applied, walker: "_Walker") -> None:
    """Match the calls of operators that entries name, in order, within the calls of one module each."""
    work = applied.work
    golden, target = _operators_by_place(work.golden), _operators_by_place(work.target)
    for (path, call, name), indexes in target.items():
        translated, entries = walker.translate_operator(path, name)
        if not entries:
            continue
        others = _operators_at(golden, translated, call)
        for pair in zip(others, indexes, strict=False):
            if applied.match(pair, entries):
                applied.share_arguments(pair)
        if not others:
            applied.fail(entries[-1], _absent("golden", translated))


_Operators: TypeAlias = dict[tuple[str, int, str], list[int]]
"""The calls of operators in order, by path and call of the module around them and by their name."""


def _operators_by_place(tree: SliceTree) -> _Operators:
    found = defaultdict[tuple[str, int, str], list[int]](list)
    for index, node in _forward(tree):
        if is_operator(node):
            modules = tree.modules(tree.around(index))
            around = tree.nodes[modules[0]] if modules else None
            place = ("", 0) if around is None else (around.path, around.call)
            found[(*place, node.path.rpartition(".")[2])].append(index)
    return found


def _operators_at(operators: _Operators, path: str, call: int) -> list[int]:
    """Return the calls of the operator that a path ends with.

    msprobe puts the function of the framework that called it between module and operator: what no module is
    called is passed over.
    """
    around, _, name = path.rpartition(".")
    while True:
        if found := operators.get((around, call if around else 0, name)):
            return found
        if not around:
            return []
        around = around.rpartition(".")[0]


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

    def translate_operator(self, path: str, name: str) -> tuple[str, list[MappingEntry]]:
        """Return what an operator in a module is called in the golden dump; no entries if none names it."""
        whole = f"{path}.{name}" if path else name
        golden, entries = self.translate(whole)
        names_it = bool(entries) and entries[-1].target.rpartition(".")[2] == name
        is_last = names_it and golden.endswith(entries[-1].golden[0])
        return (golden, entries) if is_last else (golden, [])

    def _longest(self, scope: str, parts: tuple[str, ...]) -> MappingEntry | None:
        section = self._sections.get(scope, {})
        beginnings = (parts[:length] for length in range(len(parts), 0, -1))
        return next((section[beginning] for beginning in beginnings if beginning in section), None)

    def why_never(self, entry: MappingEntry) -> Message:
        """Say why an entry was never used."""
        if entry.scope != TOP_LAYER and entry.scope not in self.class_of.values():
            return Message.of("matching.mapping.no_target_class", scope=entry.scope)
        return Message.of("matching.mapping.no_target_path", scope=entry.scope)


def _apply_cells(work: Pairing, mapping: MappingFile) -> Iterable[Message]:
    applied = Applied(work, mapping)
    golden = {(_cell(node), node.direction, node.call): index for index, node in _forward(work.golden)}
    whole = {entry.target: entry for entry in mapping.entries}
    for index, node in _forward(work.target):
        name = _cell(node)
        golden_name, entries = _translate(name, (whole[name],) if name in whole else mapping.entries)
        partner = golden.get((golden_name, node.direction, node.call))
        if partner is None:
            for entry in entries:
                applied.fail(entry, _absent("golden", golden_name))
        elif entries:
            applied.match((partner, index), entries)
    return applied.notes(lambda entry: Message.of("matching.mapping.no_target_name", name=entry.target))


def _translate(name: str, entries: Iterable[MappingEntry]) -> tuple[str, list[MappingEntry]]:
    """Replace what entries name in a name, one after the other; return which were used, too."""
    used: list[MappingEntry] = []
    for entry in entries:
        if entry.target in name:
            used.append(entry)
            name = name.replace(entry.target, entry.golden[0], 1)
    return name, used


def _cell(node: Node) -> str:
    """Return how a cell mapping calls a node: a module by path and class, an operator without its library."""
    if is_operator(node):
        return f"{node.path.partition('.')[2]}.{node.call}"
    return f"{node.path}.{node.type_name}"


def _apply_items(work: Pairing, mapping: MappingFile) -> Iterable[Message]:
    applied = Applied(work, mapping)
    indexes = indexes_by_name(work.golden.nodes), indexes_by_name(work.target.nodes)
    labels = {"golden": _labels(work.golden), "target": _labels(work.target)}
    for entry in mapping.entries:
        golden, target = split_item(entry.golden[0]), split_item(entry.target)
        why = next(_missing({"target": target, "golden": golden}, labels), None)
        if why is not None:
            applied.fail(entry, why)
            continue
        pair = indexes[0][golden[0]], indexes[1][target[0]]
        if work.is_free(pair):
            applied.match(pair, (entry,))
        if not applied.are_in_one_match(pair):
            applied.fail(entry, Message.of("matching.mapping.said_otherwise"))
        else:
            applied.used.add(entry)
            applied.name_tensors(pair, golden[1], target[1])
    return applied.notes(lambda _: Message.of("matching.mapping.not_reached"))


def _apply_apis(work: Pairing, mapping: MappingFile) -> Iterable[Message]:
    """Match the calls of operators that stand for each other: in each module in order, the rest in order."""
    applied = Applied(work, mapping)
    golden, target = _calls_of_apis(work.golden), _calls_of_apis(work.target)
    tensors = grouped((entry for entry in mapping.entries if entry.scope), lambda entry: entry.scope)
    for entry in (entry for entry in mapping.entries if not entry.scope):
        pairs = _in_order(golden.get(entry.golden[0], {}), target.get(entry.target, {}))
        if not pairs:
            applied.fail(entry, _why_no_api(entry, golden, target))
        for pair in pairs:
            is_matched, named = applied.match(pair, (entry,)), tensors.get(entry.target, ())
            for tensor in named if is_matched else ():
                _name_tensor(applied, pair, tensor)
            if is_matched and not named:
                applied.share_arguments(pair)
    return applied.notes(lambda _: Message.of("matching.mapping.not_reached"))


_Item: TypeAlias = tuple[str, str | None]
"""The name of a node, and the label of one of its tensors."""


def _apply_views(work: Pairing, mapping: MappingFile) -> Iterable[Message]:
    """Match the nodes of tensors that are seen as each other, several with the one they were fused into."""
    applied = Applied(work, mapping)
    labels = {"golden": _labels(work.golden), "target": _labels(work.target)}
    for entries in grouped(mapping.entries, lambda entry: entry.line).values():
        items = {
            "golden": list(map(split_tensor, entries[0].golden)),
            "target": [split_tensor(entry.target) for entry in entries],
        }
        missing = (_missing({side: item}, labels) for side, of_side in items.items() for item in of_side)
        why = next(chain.from_iterable(missing), None) or _view_nodes(applied, entries, **items)
        if why is not None:
            for entry in entries:
                applied.fail(entry, why)
    return applied.notes(lambda _: Message.of("matching.mapping.not_reached"))


def _view_nodes(
    applied: Applied, entries: Sequence[MappingEntry], golden: Sequence[_Item], target: Sequence[_Item]
) -> Message | None:
    """Match the nodes of an item of a view mapping, and keep how their tensors are seen; say why not."""
    work = applied.work
    indexes = indexes_by_name(work.golden.nodes), indexes_by_name(work.target.nodes)
    first = tuple(dict.fromkeys(indexes[0][node] for node, _ in golden))
    second = tuple(dict.fromkeys(indexes[1][node] for node, _ in target))
    if not applied.match_all(first, second, entries):
        return Message.of("matching.mapping.said_otherwise")
    if len(first) == len(second) == 1:
        view = SaidView(_known_labels(golden), _known_labels(target), entries[0].view)
        work.said_views.setdefault((first[0], second[0]), []).append(view)
    return None


def _known_labels(items: Iterable[_Item]) -> tuple[str, ...]:
    return tuple(known(seconds(items)))


def _name_tensor(applied: Applied, pair: Pair, entry: MappingEntry) -> None:
    work = applied.work
    nodes = work.golden.nodes[pair[0]], work.target.nodes[pair[1]]
    for node, label in zip(nodes, (entry.golden[0], entry.target), strict=True):
        if label not in {record.label for record in node.tensors}:
            applied.fail(entry, Message.of("matching.mapping.no_tensor", node=node.name, tensor=label))
            return
    applied.used.add(entry)
    applied.name_tensors(pair, entry.golden[0], entry.target)


_Calls: TypeAlias = Mapping[str, Mapping[str, Sequence[int]]]
"""The calls of each operator in order, by the path of the module around them."""


def _calls_of_apis(tree: SliceTree) -> _Calls:
    found = defaultdict[str, defaultdict[str, list[int]]](lambda: defaultdict(list))
    for (path, _, _), indexes in _operators_by_place(tree).items():
        for index in indexes:
            found[tree.nodes[index].path][path].append(index)
    return found


def _in_order(golden: Mapping[str, Sequence[int]], target: Mapping[str, Sequence[int]]) -> list[Pair]:
    """Pair calls in order in each module that has as many on both sides; the rest, if it is as many."""
    alike = {path for path, calls in target.items() if len(golden.get(path, ())) == len(calls)}
    pairs = [pair for path in alike for pair in zip(golden[path], target[path], strict=True)]
    rest = [sorted(_calls_but(of, alike)) for of in (golden, target)]
    if len(rest[0]) != len(rest[1]):
        return pairs
    return pairs + list(zip(*rest, strict=True))


def _calls_but(calls: Mapping[str, Sequence[int]], alike: Container[str]) -> Iterator[int]:
    return chain.from_iterable(of_module for path, of_module in calls.items() if path not in alike)


def _why_no_api(entry: MappingEntry, golden: _Calls, target: _Calls) -> Message:
    if entry.target not in target:
        return _absent("target", entry.target)
    if entry.golden[0] not in golden:
        return _absent("golden", entry.golden[0])
    calls = {"golden": golden[entry.golden[0]], "target": target[entry.target]}
    counts = {side: sum(map(len, of_api.values())) for side, of_api in calls.items()}
    return Message.of("matching.mapping.other_numbers_of_calls", **counts)


def _labels(tree: SliceTree) -> dict[str, set[str | None]]:
    """Return the labels of the tensors of each node by its name; that of no tensor is None."""
    return {node.name: {None, *(record.label for record in node.tensors)} for node in tree.nodes}


def _missing(
    items: Mapping[str, tuple[str, str | None]], labels: Mapping[str, Mapping[str, set[str | None]]]
) -> Iterator[Message]:
    """Say which of the nodes that an entry names are not there, else which of their tensors."""
    yield from (_absent(side, node) for side, (node, _) in items.items() if node not in labels[side])
    for side, (node, label) in items.items():
        if label not in labels[side][node]:
            yield Message.of("matching.mapping.no_tensor", node=node, tensor=label)


def _absent(side: str, name: str) -> Message:
    return Message.of("matching.mapping.absent", side=side_named(side), name=name)


def _apply_types(work: Pairing, mapping: MappingFile) -> Iterable[Message]:
    applied = Applied(work, mapping)
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


def _split_type(name: str) -> tuple[str, str | None]:
    output = _OUTPUT.fullmatch(name)
    return (output["type"], f"output.{int(output['number'])}") if output else (name, None)


def _by_type(tree: SliceTree) -> dict[str, dict[int | None, list[int]]]:
    """Return the forward nodes of each type, by the number of the layer they are in."""
    types = grouped(_forward(tree), lambda entry: entry[1].type_name.rpartition(".")[2])
    return {name: grouped(firsts(entries), partial(_layer, tree)) for name, entries in types.items()}


def _layer(tree: SliceTree, index: int) -> int | None:
    """Return the first number in the path of a node or of the innermost module around it."""
    modules = tree.modules((index, *tree.around(index)))
    number = _NUMBER.search(tree.nodes[modules[0]].path) if modules else None
    return None if number is None else int(number[1])


def _modules(tree: SliceTree) -> Iterator[tuple[int, Node]]:
    """Yield the modules whose forward pass was recorded, and the others by what was."""
    for index in tree.modules(range(len(tree.nodes))):
        node = tree.nodes[index]
        is_forward = node.direction is not Direction.BACKWARD
        if not holds_gradients(node) and (is_forward or call_key(node) not in tree.forward_calls):
            yield index, node


def _forward(tree: SliceTree) -> Iterator[tuple[int, Node]]:
    entries = enumerate(tree.nodes)
    return (entry for entry in entries if pass_of(entry[1]) == FORWARD_PASS)


_APPLY: Final[dict[MappingKind, Callable[[Pairing, MappingFile], Iterable[Message]]]] = {
    MappingKind.LAYER: _apply_layers,
    MappingKind.DATA: _apply_items,
    MappingKind.CELL: _apply_cells,
    MappingKind.API: _apply_apis,
    MappingKind.OPERATOR: _apply_types,
    MappingKind.VIEW: _apply_views,
}
