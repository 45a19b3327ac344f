"""Read the torch dumps of msit: one folder per token, one folder in it per module.

    torch_tensors/cpu_14498/0/root.model.layers.0.mlp/output.pth   →   output.0 of model.layers.0.mlp

The dump does not say in which order modules ran; that is derived, once for all tokens of a process, from
the token with most folders (`execution_order`).

Any of the folders may be named:

runs/llama/                          a folder with exactly one dump in or below it
└── msit_dump_20261120_155326/
    └── torch_tensors/
        └── cuda0_14498/             one device and process: a rank
            ├── model_tree.json
            ├── weights/root.model.norm.weight.pth
            └── 3/                   a token
                └── root.model.layers.0/output.pth

Which modules and operator calls there are is said by `model_tree.json` and the names of folders:

    {"name": "root", "type": "LlamaForCausalLM", "children": [{"name": "root.model", …}]}

A folder that the tree does not name is an operator call if the tree names the module around it. Where
that module is missing too, the tree was cut short (the run died in its first pass) and names decide.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Final

from msgspec import Struct

from firstdrift.dumps.execution_order import (
    children_of,
    finish_order,
    natural_key,
    takers_of_unmade,
    value_flows,
)
from firstdrift.dumps.msit.module_folder import ModuleFolder, read_module_folder
from firstdrift.dumps.nodes import inputs_first, module_around
from firstdrift.dumps.reader import Basis, DumpReader
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import (
    MOST_ENTRIES,
    files_ending,
    folder_entries,
    is_file,
    number_in_name,
    passed_over,
    printable,
    process_folders,
    ranks_of,
    refusals_in,
    refused_links,
    sub_folders,
    written_at,
)
from firstdrift.dumps.storage.json_file import read_json
from firstdrift.dumps.storage.tensor_data import records_of_file
from firstdrift.errors import DumpUnreadableError
from firstdrift.groups import gathered
from firstdrift.model.names import enclosing_paths
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Dump, OrderOrigin, OrderSource, Problem, Slice, SliceListing
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.paths import OPERATOR
from firstdrift.operators.properties import calls_only, last_part
from firstdrift.wording.message import Message, joined

TREE_FILE = "model_tree.json"
WEIGHTS_FOLDER = "weights"
TENSORS_FOLDER = "torch_tensors"
_TOKEN_NAME = re.compile(r"0|[1-9][0-9]{0,17}")
_DEVICE_NAME = re.compile(r"[a-z]+(?P<index>[0-9]*)_[0-9]+")


class Device(Struct, frozen=True):
    """What one process wrote.

    Attributes:
        folder: holds its tokens.
        rank: its rank among others; None if it is alone.
        tokens: their folders in ascending order.
        bounds: what no link in its folder may lead out of.
    """

    folder: Path
    rank: int | None
    tokens: tuple[Path, ...]
    bounds: Bounds


def find_devices(path: Path) -> tuple[Device, ...]:
    """Return the devices of the one dump at, above or below a path; none if there is no such dump."""
    bounds = bounds_of(path)
    if is_token(path):
        return (Device(path.parent, None, (path,), bounds),)

    folders = process_folders(
        path,
        partial(_is_device, bounds=bounds),
        lambda folder: folder.name == TENSORS_FOLDER,
        partial(sub_folders, bounds=bounds),
    )
    ranks = ranks_of([number_in_name(folder.name, _DEVICE_NAME) for folder in folders])
    return tuple(
        Device(folder, rank, token_folders(folder, bounds), bounds)
        for folder, rank in zip(folders, ranks, strict=True)
    )


def bounds_of(path: Path) -> Bounds:
    """Return what no link may lead out of: the path, but for a token what its process wrote."""
    bounds = Bounds.around(path)
    return Bounds(bounds.root.parent) if is_token(path) else bounds


def token_folders(device: Path, bounds: Bounds) -> tuple[Path, ...]:
    """Return the folders of a device's tokens in ascending order."""
    tokens = [folder for folder in sub_folders(device, bounds=bounds) if _is_token_name(folder.name)]
    return tuple(sorted(tokens, key=lambda folder: int(folder.name)))


def is_token(path: Path) -> bool:
    """Tell whether a path is the folder of one token: numbered, with module folders in it."""
    return _is_token_name(path.name) and any(
        is_module_name(folder.name) for folder in sub_folders(path, MOST_ENTRIES)
    )


def _is_token_name(name: str) -> bool:
    return _TOKEN_NAME.fullmatch(name) is not None


def is_module_name(name: str) -> bool:
    """Tell whether a folder is named like a module."""
    return name == "root" or name.startswith("root.")


def _is_device(path: Path, bounds: Bounds) -> bool:
    if is_file(path / TREE_FILE):
        return True
    return _DEVICE_NAME.fullmatch(path.name) is not None and any(
        map(is_token, sub_folders(path, MOST_ENTRIES, bounds=bounds))
    )


ROOT = "root"


class Outline(Struct, frozen=True):
    """A node without its tensors.

    Attributes:
        name: "root.model.layers.0.mlp", as the dump writes it.
        kind: model, module or api.
        type_name: class of the module, name of the operator; empty where unknown.
        parent: name of the node around it.
        is_certain: it is part of the model, so of every token; else only of tokens with its folder.
    """

    name: str
    kind: NodeKind
    type_name: str
    parent: str | None
    is_certain: bool

    @property
    def label(self) -> str:
        """What tells when it runs: the last part of the name of a module."""
        return OPERATOR if self.kind is NodeKind.API else last_part(self.name)

    @property
    def path(self) -> str:
        """The name without "root."; for the root its class."""
        if self.name == ROOT:
            return self.type_name or ROOT
        return self.name.removeprefix(f"{ROOT}.")


def read_tree(file: Path) -> tuple[Outline, ...]:
    """Read the tree in the order of definition, parents before children."""
    waiting = [(read_json(file).value, None)]
    entries: dict[str, Outline] = {}
    while waiting:
        value, parent = waiting.pop()
        try:
            name, type_name, children = value["name"], value["type"], value["children"]
            is_tree = isinstance(name, str) and isinstance(type_name, str) and name not in entries
            waiting.extend((child, name) for child in reversed(children))
        except (KeyError, TypeError) as exc:
            raise DumpUnreadableError(Message.of("dumps.msit.no_tree"), path=file) from exc
        if not is_tree:
            raise DumpUnreadableError(Message.of("dumps.msit.no_names_or_types"), path=file)
        kind = NodeKind.MODULE if parent else NodeKind.MODEL
        entries[name] = Outline(name, kind, type_name, parent, is_certain=True)
    return tuple(entries.values())


def is_cut_short(tree: Sequence[Outline], folders: Iterable[str]) -> bool:
    """Tell whether folders belong to modules that the tree should name and does not."""
    named = {entry.name for entry in tree}
    return any(folder not in named and folder.rpartition(".")[0] not in named for folder in folders)


def outline_nodes(
    tree: Sequence[Outline], folders: Iterable[str], owners: Iterable[str], types: dict[str, str]
) -> dict[str, Outline]:
    """Outline all nodes, parents before children: those of the tree, then those known from names.

    Names are those of the module folders of all tokens, and of the owners of saved parameters; `types` has
    the classes of modules that are known otherwise.
    """
    folders = set(folders)
    outlines = {outline.name: outline for outline in tree}
    around = set(chain.from_iterable(map(enclosing_paths, (*folders, *owners))))
    operators = folders - around
    if not tree or is_cut_short(tree, folders):
        operators = {name for name in operators if last_part(name) in calls_only()}
    for name in sorted({*folders, *owners, *around} - outlines.keys(), key=natural_key):
        parent = module_around(name)
        kind, type_name = NodeKind.MODULE if parent else NodeKind.MODEL, types.get(name, "")
        if name in operators:
            kind, type_name = NodeKind.API, last_part(name)
        outlines[name] = Outline(name, kind, type_name, parent, is_certain=name not in folders)
    return outlines


_EMPTY: Final = ModuleFolder(())


class _Skeleton(Struct, frozen=True):
    """The nodes of a process in the order in which they finish."""

    outlines: tuple[Outline, ...]
    order_origin: OrderOrigin
    problems: tuple[Problem, ...]


class MsitTorchReader(DumpReader):
    """The `DumpReader` of msit torch dumps."""

    format = "msit-torch"
    title = Message.of("dumps.msit.title")
    marks = (TREE_FILE, TENSORS_FOLDER)

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that a path is, holds or lies in one msit torch dump."""
        devices = find_devices(path)
        if not devices:
            return ()
        folders = _names(devices)
        has_tree = any(is_file(device.folder / TREE_FILE) for device in devices)
        tokens = sum(len(device.tokens) for device in devices)
        what = "trees" if has_tree else "module_folders"
        found = Message.of(f"dumps.msit.{what}", file=TREE_FILE, folders=folders)
        return found, Message.of("dumps.msit.token_folders", count=tokens)

    def open_dump(self, path: Path) -> Dump:
        """List the tokens of each process."""
        devices = find_devices(path)
        if not devices:
            raise self.none_at(path)
        listings = [
            SliceListing(Coordinates(rank=device.rank, token=int(token.name)), token)
            for device in devices
            for token in device.tokens
        ]
        attributes = {"framework": "pytorch", "devices": _names(devices)}
        return self.dump(path, listings, _problems_of(path, devices), attributes)

    def bases(self, dump: Dump) -> Mapping[SliceListing, Basis]:
        """Say what decides what is found in each token: its folder, and what gives nodes their order."""
        bounds = bounds_of(dump.path)
        shared = {device: _shared_basis(device, bounds) for device in {_device(one) for one in dump.slices}}
        return {
            one: Basis((one.directory, *shared[_device(one)].paths), shared[_device(one)].beside)
            for one in dump.slices
        }

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the nodes and tensors of a token."""
        token = listing.directory
        device = token.parent
        bounds = bounds_of(dump.path)
        watched = (device, device / TREE_FILE, *token_folders(device, bounds))
        skeleton = _skeleton(device, bounds, tuple(map(written_at, watched)))
        folders, problems = _read_token(token, bounds)
        parameters = gathered(
            (owner, record)
            for owner, key, file in _parameter_files(device, bounds)
            for record in records_of_file(file, "pt", Role.PARAMETER, key, bounds.refusal(file))
        )
        present = [outline for outline in skeleton.outlines if outline.is_certain or outline.name in folders]
        nodes = tuple(
            _node(outline, order, folders.get(outline.name, _EMPTY), parameters[outline.name])
            for order, outline in enumerate(present)
        )
        return Slice(listing, nodes, skeleton.order_origin, (*skeleton.problems, *problems))


def _names(devices: Iterable[Device]) -> str:
    return ", ".join(printable(device.folder.name) for device in devices)


def _problems_of(path: Path, devices: Sequence[Device]) -> Iterator[Problem]:
    around = devices[0].folder.parent
    if path not in (devices[0].folder, *devices[0].tokens):
        for name, reason in refused_links(around, devices[0].bounds):
            yield Problem(printable(name), reason)
    for device in devices:
        where = printable(device.folder.name)
        if not device.tokens:
            yield Problem(where, Message.of("dumps.msit.no_token_folder"))
        refused = dict(refused_links(device.folder, device.bounds))
        for name, reason in refused.items():
            yield Problem(f"{where}/{printable(name)}", reason)
        yield from passed_over(where, _unknown_entries(device, refused))


def _node(outline: Outline, order: int, folder: ModuleFolder, parameters: Iterable[TensorRecord]) -> Node:
    return Node(
        name=outline.name,
        path=outline.path,
        kind=outline.kind,
        type_name=outline.type_name,
        direction=Direction.FORWARD,
        call=0,
        order=order,
        parent=outline.parent,
        tensors=inputs_first(folder.tensors, parameters),
    )


def _device(listing: SliceListing) -> Path:
    return listing.directory.parent


def _shared_basis(device: Path, bounds: Bounds) -> Basis:
    """Say what decides about all tokens of a process: its tree, its weights, and the fullest token."""
    by_token = _modules_of_tokens(device, bounds)
    fullest = _fullest(by_token)
    names = sorted(set(chain.from_iterable(by_token.values())))
    paths = device / TREE_FILE, device / WEIGHTS_FOLDER, *([fullest] if fullest else [])
    return Basis(paths, tuple(names))


def _modules_of_tokens(device: Path, bounds: Bounds) -> dict[Path, set[str]]:
    return {
        token: {printable(folder.name) for folder in sub_folders(token)}
        for token in token_folders(device, bounds)
    }


def _fullest(by_token: Mapping[Path, set[str]]) -> Path | None:
    """Return the token with most folders, whose values tell in which order nodes ran."""
    return max(by_token, key=lambda token: len(by_token[token]), default=None)


@lru_cache(maxsize=8)
def _skeleton(device: Path, bounds: Bounds, _stamps: tuple[int, ...]) -> _Skeleton:
    tree, problems = _tree_or_problem(device / TREE_FILE, bounds)
    by_token = _modules_of_tokens(device, bounds)
    fullest = _fullest(by_token)
    folders = _read_token(fullest, bounds)[0] if fullest else {}
    names = set(filter(is_module_name, chain.from_iterable(by_token.values())))
    if tree and is_cut_short(tree, names):
        problems = (*problems, Problem(_shown(device / TREE_FILE), Message.of("dumps.msit.modules_missing")))
    types = {name: folder.type_name for name, folder in folders.items()}
    owners = [owner for owner, _, _ in _parameter_files(device, bounds)]
    return _in_order(outline_nodes(tree, names, owners, types), folders, problems, has_tree=bool(tree))


def _in_order(
    outlines: Mapping[str, Outline],
    folders: Mapping[str, ModuleFolder],
    problems: tuple[Problem, ...],
    *,
    has_tree: bool,
) -> _Skeleton:
    """Derive the order in which nodes finish, from the values in the folders of one token."""
    parents = {name: outline.parent for name, outline in outlines.items()}
    labels = {name: outline.label for name, outline in outlines.items()}
    tensors = {name: folder.tensors for name, folder in folders.items()}
    flows, late = value_flows(tensors, parents), takers_of_unmade(tensors, parents)
    order, count = finish_order(children_of(outlines, parents), labels, flows, late)
    rest = "definition" if has_tree else "folder_names"
    derived = Message.of(f"dumps.order.from_module_names_and_{rest}", orderings=count)
    return _Skeleton(
        tuple(outlines[name] for name in order), OrderOrigin(OrderSource.DERIVED, derived), problems
    )


def _tree_or_problem(file: Path, bounds: Bounds) -> tuple[tuple[Outline, ...], tuple[Problem, ...]]:
    try:
        return read_tree(bounds.require(file)), ()
    except DumpUnreadableError as exc:
        problem = joined(exc.message, Message.of("dumps.msit.tree_from_folders"))
        return (), (Problem(_shown(file), problem),)


def _read_token(token: Path, bounds: Bounds) -> tuple[dict[str, ModuleFolder], list[Problem]]:
    """Read all module folders of a token; what cannot be read or is not known is a problem."""
    refusals = refusals_in(token, bounds)
    folders: dict[str, ModuleFolder] = {}
    problems: list[Problem] = []
    unknown = [name for name in refusals if not is_module_name(name)]
    for name in filter(is_module_name, refusals):
        folder = _read_module(token / name, refusals[name], bounds)
        if isinstance(folder, Message):
            problems.append(Problem(_shown(token / name), folder))
            continue
        folders[printable(name)] = folder
        problems += [Problem(_shown(token / name / file), note) for file, note in folder.notes]
        unknown += [f"{name}/{file}" for file in folder.unknown]
    return folders, problems + passed_over(_shown(token), unknown)


def _read_module(folder: Path, refusal: Message | None, bounds: Bounds) -> ModuleFolder | Message:
    """Return what lies in the folder of a module, or why that cannot be read."""
    try:
        return refusal or read_module_folder(folder, bounds)
    except DumpUnreadableError as exc:
        return exc.message


def _parameter_files(device: Path, bounds: Bounds) -> Iterator[tuple[str, str, Path]]:
    """Yield the saved weights, each with its module and its key: ("root.lm_head", "weight", ….weight.pth)."""
    folder = device / WEIGHTS_FOLDER
    for file in [] if bounds.refusal(folder) else files_ending(folder, ".pth"):
        name = printable(file.stem)
        owner, _, key = name.rpartition(".")
        yield owner or name, key, file


def _unknown_entries(device: Device, refused: Collection[str]) -> list[str]:
    """Name what lies in the folder of a process and is neither tree nor weight nor token."""
    tokens = (token.name for token in token_folders(device.folder, device.bounds))
    known = {TREE_FILE, WEIGHTS_FOLDER, *refused, *tokens}
    weights = [] if WEIGHTS_FOLDER in refused else folder_entries(device.folder / WEIGHTS_FOLDER)
    unknown = [entry for entry, _ in folder_entries(device.folder) if entry.name not in known]
    unknown += [entry for entry, _ in weights if entry.suffix != ".pth"]
    return [printable(str(entry.relative_to(device.folder))) for entry in unknown]


def _shown(path: Path) -> str:
    """Return the part of a path that tells a process's files apart: cpu_14498/0/root.model/output.pth."""
    device = next((at for at, part in enumerate(path.parts) if part == "torch_tensors"), len(path.parts) - 4)
    return printable("/".join(path.parts[device + 1 :]))
