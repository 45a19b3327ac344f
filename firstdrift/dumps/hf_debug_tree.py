"""Read what the model debugger of Hugging Face transformers writes of one forward pass.

    Llama_debug_tree_FULL_TENSORS.json    the calls of the modules, nested as they ran
    Llama_debug_tree_SUMMARY.json         the same without the values
    Llama.model.norm_outputs.safetensors  a tensor, where they were saved as files (`use_repr=False`)

    {"module_path": "Llama.model.norm", "inputs": {"args": [tensor], "kwargs": {}}, "outputs": tensor}
    tensor = {"shape": "torch.Size([2, 8])", "dtype": "torch.float32", "mean": "tensor(-1.2067e-02)", ...}

Outputs are those of the innermost modules alone. Statistics have five digits. A module that ran twice has
overwritten the file of its first call.
"""

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeGuard

from msgspec import Struct, field
from msgspec.structs import replace

from firstdrift.dumps.containers.contents import number_in, sizes_in
from firstdrift.dumps.msprobe.records import canonical_dtype
from firstdrift.dumps.reader import DumpReader
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import files_in, is_file, printable, problem_of_file
from firstdrift.dumps.storage.json_file import items_of, read_json
from firstdrift.errors import DumpNotRecognisedError, DumpUnreadableError
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Dump, Problem, Slice, SliceListing
from firstdrift.model.tensor import DataLocation, Role, Statistics, TensorRecord
from firstdrift.wording.message import Message, joined

_TREE: Final = re.compile(r"(?P<model>.+)_debug_tree_(?P<kind>FULL_TENSORS|SUMMARY)\.json", re.DOTALL)
_MOST_ENTRIES: Final = 20_000
_SHAPE: Final = re.compile(r"torch\.Size\(\[(?P<sizes>[0-9, ]*)\]\)", re.ASCII)
_NUMBER: Final = re.compile(r"(?:DTensor \(rank0\) -> )?tensor\(\s*(?P<number>[^,()\s]+)", re.ASCII)
_FILE: Final = re.compile(r"(?:\./)?(?P<name>[^/\0]+\.safetensors)")
_ENTRY: Final = "data"
_SCALARS: Final = (
    ("bool", re.compile(r"True|False")),
    ("int", re.compile(r"-?[0-9]{1,1000}", re.ASCII)),
    ("float", re.compile(r"-?(?:inf|nan|[0-9.]+(?:e[+-]?[0-9]+)?)", re.ASCII)),
    ("str", re.compile(r"'.*'|\".*\"", re.DOTALL)),
)
_DEEPEST: Final = 400


class HfDebugTreeReader(DumpReader):
    """The `DumpReader` of call trees of transformers' model debugger."""

    format = "hf-debug-tree"
    title = Message.of("dumps.hf_debug_tree.title")

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that a path is such a tree, or holds one; empty if it does not."""
        trees = _trees(path)
        if not trees:
            return ()
        return (Message.of("dumps.hf_debug_tree.trees", files=_names(trees)),)

    def is_marked(self, folder: Path) -> bool:
        """Tell whether such a tree lies in a folder."""
        return bool(_trees(folder))

    def open_dump(self, path: Path) -> Dump:
        """List the one forward pass of a tree."""
        trees = _trees(path)
        if not trees:
            raise DumpNotRecognisedError(Message.of("dumps.hf_debug_tree.none"), path=path)
        if len(trees) > 1:
            several = Message.of("dumps.hf_debug_tree.several", files=_names(trees))
            hint = Message.of("dumps.hf_debug_tree.choose_one")
            raise DumpNotRecognisedError(several, path=path, hint=hint)
        ((model, tree),) = trees.items()
        attributes = {"framework": "pytorch", "model": printable(model)}
        return self.dump(path, [SliceListing(Coordinates(), tree)], attributes=attributes)

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the calls of the tree, in the order in which they ended."""
        tree = listing.directory
        bounds = Bounds.around(dump.path)
        read = read_json(bounds.require(tree))
        if not _is_call(read.value):
            raise DumpUnreadableError(Message.of("dumps.hf_debug_tree.no_call"), path=tree)
        work = _Reading(tree.parent, bounds)
        try:
            nodes = tuple(work.read(read.value))
        except RecursionError as exc:
            raise DumpUnreadableError(Message.of("dumps.json.nested_too_deeply"), path=tree) from exc
        reasons = (*work.problems, *_left_over(tree, work.files))
        problems = tuple(Problem(printable(tree.name), reason) for reason in reasons)
        return Slice(listing, _without_overwritten(nodes), problems=problems)


def _names(trees: Mapping[str, Path]) -> tuple[str, ...]:
    return tuple(printable(tree.name) for tree in trees.values())


def _trees(path: Path) -> dict[str, Path]:
    """Return the tree of each model at a path; that with values where there are both."""
    trees: dict[str, Path] = {}
    for file in [path] if is_file(path) else files_in(path, _MOST_ENTRIES):
        if match := _TREE.fullmatch(file.name):
            trees.setdefault(match["model"], file)
    return trees


class _Reading(Struct):
    """Turns the calls of a tree into nodes, gathering what could not be used.

    Attributes:
        folder: where the files lie.
        bounds: what no link may lead out of.
        problems: what could not be used.
        files: names of the files that calls refer to.
        calls: how many calls of each module there were so far.
    """

    folder: Path
    bounds: Bounds
    problems: list[Message] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    calls: Counter[str] = field(default_factory=Counter)
    count: int = 0

    def read(self, call: Mapping[str, Any]) -> Iterator[Node]:
        """Yield the nodes of the whole tree; what a module called comes before it."""
        name = self._name(str(call["module_path"]))
        yield from self._read(call, name, str(call["module_path"]), None, 0)

    def _name(self, path: str) -> str:
        earlier = self.calls[path]
        self.calls[path] += 1
        return f"{path} (call {earlier})" if earlier else path

    def _read(
        self, call: Mapping[str, Any], name: str, model: str, parent: str | None, depth: int
    ) -> Iterator[Node]:
        if depth > _DEEPEST:
            raise RecursionError
        path = str(call["module_path"])
        number = self.calls[path] - 1
        children = call.get("children")
        for child in children if isinstance(children, list) else ():
            if _is_call(child):
                yield from self._read(child, self._name(child["module_path"]), model, name, depth + 1)
            else:
                self.problems.append(Message.of("dumps.hf_debug_tree.child_no_call", node=printable(name)))
        tensors = self._tensors(call)
        order, self.count = self.count, self.count + 1
        bare = "" if path == model else path.removeprefix(f"{model}.")
        yield Node(
            name=printable(name),
            path=printable(bare),
            kind=NodeKind.MODULE if parent else NodeKind.MODEL,
            type_name="" if parent else printable(model),
            direction=Direction.FORWARD,
            call=number,
            order=order,
            parent=parent and printable(parent),
            tensors=tensors,
        )

    def _tensors(self, call: Mapping[str, Any]) -> tuple[TensorRecord, ...]:
        tensors: list[TensorRecord] = []
        inputs, outputs = call.get("inputs"), call.get("outputs")
        if isinstance(inputs, dict):
            self._collect_all(Role.INPUT, inputs.get("args"), tensors)
            self._collect_all(Role.INPUT, inputs.get("kwargs"), tensors)
        self._collect_all(Role.OUTPUT, [outputs] if _is_tensor(outputs) else outputs, tensors)
        return tuple(tensors)

    def _collect_all(self, role: Role, values: object, tensors: list[TensorRecord]) -> None:
        for key, value in items_of(values if isinstance(values, list | dict) else [values]):
            self._collect(role, printable(key), value, tensors)

    def _collect(self, role: Role, key: str, value: object, tensors: list[TensorRecord]) -> None:
        if _is_tensor(value):
            tensors.append(self._tensor(role, key, value))
        elif isinstance(value, list | dict):
            for name, inner in items_of(value):
                self._collect(role, f"{key}.{printable(name)}", inner, tensors)
        elif isinstance(value, str) and value != "None":
            kind = next((name for name, form in _SCALARS if form.fullmatch(value)), None)
            if kind is not None:
                tensors.append(TensorRecord(role, key, kind, (), scalar=printable(value)))

    def _tensor(self, role: Role, key: str, leaf: Mapping[str, Any]) -> TensorRecord:
        problems: list[Message] = []
        sizes = _SHAPE.fullmatch(leaf["shape"])
        shape = sizes_in(sizes["sizes"]) if sizes else None
        if shape is None:
            recorded = repr(str(leaf["shape"])[:80])
            problems.append(Message.of("dumps.record.bad_shape", recorded=recorded))
        return TensorRecord(
            role=role,
            key=key,
            dtype=canonical_dtype(printable(str(leaf["dtype"]))),
            shape=shape,
            statistics=_statistics(leaf, shape),
            location=self._location(leaf.get("value"), problems),
            problem=joined(*problems) if problems else None,
        )

    def _location(self, value: object, problems: list[Message]) -> DataLocation | None:
        if not isinstance(value, str):
            return None
        match = _FILE.fullmatch(value)
        if match is None:
            problems.append(Message.of("dumps.hf_debug_tree.no_file_name", name=repr(value[:80])))
            return None
        self.files.add(match["name"])
        file = self.folder / match["name"]
        shown = printable(match["name"])
        if not os.path.lexists(file):
            problems.append(Message.of("dumps.record.file_missing", file=shown))
        elif refusal := self.bounds.refusal(file):
            problems.append(problem_of_file(shown, refusal))
            return None
        return DataLocation(file, "safetensors", _ENTRY)


def _is_call(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict) and isinstance(value.get("module_path"), str)


def _is_tensor(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict) and isinstance(value.get("shape"), str) and "dtype" in value


def _statistics(leaf: Mapping[str, Any], shape: tuple[int, ...] | None) -> Statistics | None:
    """Return what was recorded; the norm follows from mean, standard deviation and number of elements."""
    maximum, minimum, mean, deviation = (_number(leaf.get(name)) for name in ("max", "min", "mean", "std"))
    if maximum is minimum is mean is None:
        return None
    norm = None
    if mean is not None and deviation is not None and shape is not None:
        size = math.prod(shape)
        norm = float(f"{math.hypot(mean * math.sqrt(size), deviation * math.sqrt(max(size - 1, 0))):.4e}")
    return Statistics(maximum, minimum, mean, norm)


def _number(recorded: object) -> float | None:
    match = _NUMBER.match(recorded) if isinstance(recorded, str) else None
    return number_in(match["number"]) if match else None


def _without_overwritten(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Take the data from all calls of a module but the last: its files hold the tensors of that one alone."""
    last = {node.path: node.call for node in sorted(nodes, key=lambda node: node.call)}
    return tuple(
        node
        if node.call == last[node.path]
        else replace(node, tensors=tuple(replace(record, location=None) for record in node.tensors))
        for node in nodes
    )


def _left_over(tree: Path, known: set[str]) -> list[Message]:
    """Say which files beside a tree no call of it refers to: those of layers that were left out of it."""
    match = _TREE.fullmatch(tree.name)
    if match is None or not known:
        return []
    # Outputs of modules around others are saved for the whole model alone, and then left out of the tree.
    beginnings = (f"{match['model']}.", f"{match['model']}_inputs")
    names = {file.name for file in files_in(tree.parent, _MOST_ENTRIES)} - known
    left = sum(name.startswith(beginnings) and name.endswith(".safetensors") for name in names)
    return [Message.of("dumps.hf_debug_tree.pruned_layers", count=left)] if left else []
