"""Read the torch dumps of msit: one folder per token, one folder in it per module.

    torch_tensors/cpu_14498/0/root.model.layers.0.mlp/output.pth   →   output.0 of model.layers.0.mlp

The dump does not say in which order modules ran; that is derived, once for all tokens of a process, from
the token with most folders (`execution_order`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from firstdrift.dumps.execution_order import children_of, finish_order, value_flows
from firstdrift.dumps.msit.layout import (
    TENSORS_FOLDER,
    TREE_FILE,
    WEIGHTS_FOLDER,
    Device,
    bounds_of,
    find_devices,
    is_module_name,
    token_folders,
)
from firstdrift.dumps.msit.module_folder import ModuleFolder, read_module_folder
from firstdrift.dumps.msit.tree import Outline, TreeEntry, is_cut_short, outline_nodes, read_tree
from firstdrift.dumps.nodes import inputs_first
from firstdrift.dumps.reader import DumpReader
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import (
    files_ending,
    folder_entries,
    is_file,
    printable,
    refusals_in,
    refused_links,
    sub_folders,
    written_at,
)
from firstdrift.dumps.storage.listed_files import folder_unreadable, passed_over
from firstdrift.dumps.storage.tensor_files import records_of_file
from firstdrift.errors import DumpUnreadableError
from firstdrift.groups import gathered
from firstdrift.model.node import Direction, Node
from firstdrift.model.slice import Coordinates, Dump, OrderOrigin, OrderSource, Problem, Slice, SliceListing
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.wording.message import Message, joined


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

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the nodes and tensors of a token."""
        token = listing.directory
        device = token.parent
        bounds = bounds_of(dump.path)
        watched = (device, device / TREE_FILE, *token_folders(device, bounds))
        skeleton = _skeleton(device, bounds, tuple(map(written_at, watched)))
        folders, problems = _read_token(token, bounds)
        parameters = _read_parameters(device, bounds)
        present = [outline for outline in skeleton.outlines if outline.is_certain or outline.name in folders]
        nodes = tuple(
            _node(outline, order, folders.get(outline.name), parameters.get(outline.name, ()))
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


def _node(
    outline: Outline, order: int, folder: ModuleFolder | None, parameters: Iterable[TensorRecord]
) -> Node:
    return Node(
        name=outline.name,
        path=outline.path,
        kind=outline.kind,
        type_name=outline.type_name,
        direction=Direction.FORWARD,
        call=0,
        order=order,
        parent=outline.parent,
        tensors=inputs_first(folder.tensors if folder else (), parameters),
    )


@lru_cache(maxsize=8)
def _skeleton(device: Path, bounds: Bounds, _stamps: tuple[int, ...]) -> _Skeleton:
    tree, problems = _tree_or_problem(device / TREE_FILE, bounds)
    by_token = {
        token: {printable(folder.name) for folder in sub_folders(token)}
        for token in token_folders(device, bounds)
    }
    fullest = max(by_token, key=lambda token: len(by_token[token]), default=None)
    folders = _read_token(fullest, bounds)[0] if fullest else {}
    names = set(filter(is_module_name, chain.from_iterable(by_token.values())))
    if tree and is_cut_short(tree, names):
        problems = (*problems, Problem(_shown(device / TREE_FILE), Message.of("dumps.msit.modules_missing")))
    types = {name: folder.type_name for name, folder in folders.items()}
    owners = [file.owner for file in _parameter_files(device, bounds)]
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
    flows = value_flows({name: folder.tensors for name, folder in folders.items()}, parents)
    order, count = finish_order(children_of(outlines, parents), labels, flows)
    rest = "definition" if has_tree else "folder_names"
    derived = Message.of(f"dumps.order.from_module_names_and_{rest}", orderings=count)
    return _Skeleton(
        tuple(outlines[name] for name in order), OrderOrigin(OrderSource.DERIVED, derived), problems
    )


def _tree_or_problem(file: Path, bounds: Bounds) -> tuple[tuple[TreeEntry, ...], tuple[Problem, ...]]:
    try:
        return read_tree(bounds.require(file)), ()
    except DumpUnreadableError as exc:
        problem = joined(exc.message, Message.of("dumps.msit.tree_from_folders"))
        return (), (Problem(_shown(file), problem),)


def _read_token(token: Path, bounds: Bounds) -> tuple[dict[str, ModuleFolder], list[Problem]]:
    """Read all module folders of a token; what cannot be read or is not known is a problem."""
    try:
        refusals = refusals_in(token, bounds)
    except OSError as exc:
        raise DumpUnreadableError(folder_unreadable(exc), path=token) from exc
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
    except OSError as exc:
        return folder_unreadable(exc)


class _ParameterFile(NamedTuple):
    """A saved weight: ("root.lm_head", "weight", ….weight.pth), and why it must not be read, if so."""

    owner: str
    key: str
    file: Path
    refusal: Message | None


def _parameter_files(device: Path, bounds: Bounds) -> list[_ParameterFile]:
    folder = device / WEIGHTS_FOLDER
    if bounds.refusal(folder):
        return []
    found = []
    for file in files_ending(folder, ".pth"):
        name = printable(file.stem)
        owner, _, key = name.rpartition(".")
        found.append(_ParameterFile(owner or name, key, file, bounds.refusal(file)))
    return found


def _read_parameters(device: Path, bounds: Bounds) -> dict[str, list[TensorRecord]]:
    return gathered(
        (owner, record)
        for owner, key, file, refusal in _parameter_files(device, bounds)
        for record in records_of_file(file, "pt", Role.PARAMETER, key, refusal)
    )


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
