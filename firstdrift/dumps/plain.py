"""Read a folder of tensor files whose names are node paths, or a single such file.

    run/token3/layers/0/attn.output.0.npy   →   output.0 of layers.0.attn in token 3
    run/model.safetensors: "layers.0.attn.q_proj.weight"   →   parameter weight of layers.0.attn.q_proj

Nothing but names is known, so they decide: coordinates from folders (step0, rank_1, token3, or numbers
alone), role and key from the end of a name, and the order of execution from all of it. Tensor files of
msprobe that have lost their dump.json still bear the names of the calls (`msprobe.file_names`).
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.checkpoint import Index, dequantised, is_shard, missing_shards, read_indexes
from firstdrift.dumps.containers.contents import TensorHeader
from firstdrift.dumps.execution_order import (
    children_of,
    finish_order,
    natural_key,
    takers_of_unmade,
    value_flows,
)
from firstdrift.dumps.msprobe.file_names import FileName, calls_of, is_call_name, parse_file_name
from firstdrift.dumps.nodes import counted, module_around, module_node, numbered
from firstdrift.dumps.reader import Basis, DumpReader
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import (
    MOST_ENTRIES,
    files_in,
    first_names,
    is_folder,
    printable,
    search_folders,
    sub_folders,
)
from firstdrift.dumps.storage.tensor_data import (
    CONTAINER_BY_SUFFIX,
    container_of,
    dotted,
    headers_of,
    looks_like,
    record_of,
)
from firstdrift.errors import DumpNotRecognisedError, DumpUnreadableError
from firstdrift.files import Entry, list_folder, said_by_system
from firstdrift.groups import gathered, grouped, not_in
from firstdrift.model.names import enclosing_paths, module_path
from firstdrift.model.slice import Coordinates, Dump, OrderOrigin, OrderSource, Problem, Slice, SliceListing
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.properties import last_part
from firstdrift.wording.message import Message

_COORDINATE = re.compile(r"(?P<name>step|rank|token|micro_step)[_-]?(?P<value>[0-9]{1,18})", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
_ROLE = re.compile(
    r"(?:(?P<node>.+)[._])?(?P<role>input|output)s?(?:[._](?P<key>[0-9]+(?:[._][0-9]+)*))?", re.ASCII
)
_PARAMETER = re.compile(
    r"(?P<node>.+)\.(?P<key>weight|bias|[a-z_]*weight|[a-z_]*scales?|weight_[a-z_]+|running_mean|running_var)(?P<grad>\.grad)?"
)
_NAMELESS = "tensor"
_HOLDERS = {".safetensors", ".npz"}
_UNREAD_SUFFIXES = {".pkl", ".ckpt", ".h5", ".onnx"}
_DEEPEST_SEARCH = 4


class _TensorFile(Struct, frozen=True):
    """A file and what the names of its folders say.

    Attributes:
        file: where it lies.
        coordinates: of its slice.
        place: what holds the slice: the folder whose name ends the coordinates, or the file itself.
        name: the dotted rest of its path without suffix; empty if the whole path is coordinates.
        refusal: why it must not be read; None if it may be.
    """

    file: Path
    coordinates: Coordinates
    place: Path
    name: str
    refusal: Message | None = None


class PlainReader(DumpReader):
    """The `DumpReader` of plain tensor files."""

    format = "plain"
    title = Message.of("dumps.plain.title")
    is_last_resort = True

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that there are tensor files at or below a path."""
        if path.is_file():
            is_known = path.suffix in CONTAINER_BY_SUFFIX
            return (Message.of("dumps.plain.is_file", suffix=path.suffix),) if is_known else ()
        first = partial(_first_tensor_file, bounds=Bounds.around(path))
        for folder in search_folders(path, first, deepest=_DEEPEST_SEARCH, most=1).folders:
            found = Message.of("dumps.plain.tensor_file", file=_shown(path, first(folder) or folder))
            return found, Message.of("dumps.plain.no_other_format")
        return ()

    def open_dump(self, path: Path) -> Dump:
        """Find the tensor files and group them by the coordinates in the names of their folders."""
        places: dict[Coordinates, Path] = {}
        problems: list[Problem] = []
        files = list(_Search(path, problems).files(path))
        for file in files:
            place = places.setdefault(file.coordinates, file.place)
            if place != file.place:
                slice_name = file.coordinates.name()
                twice = Message.of("dumps.plain.slice_twice", holder=printable(place.name), slice=slice_name)
                problems.append(Problem(_shown(path, file.file), twice))
        if not places:
            raise DumpNotRecognisedError(Message.of("dumps.plain.no_tensor_file"), path=path)
        dump = self.dump(path, (SliceListing(*listed) for listed in places.items()), problems)
        return replace(dump, evidence=(*dump.evidence, *_understood(files)))

    def bases(self, dump: Dump) -> Mapping[SliceListing, Basis]:
        """Say what decides what is found in each slice: what lies there, and what numbers in names mean."""
        numbers = f"numbers are tokens: {_are_numbers_tokens(dump.path)}"
        return {listing: Basis((listing.directory,), (numbers,)) for listing in dump.slices}

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the headers of the files of a slice."""
        files = [
            file
            for file in _Search(dump.path, []).files(listing.directory)
            if file.coordinates == listing.coordinates and file.place == listing.directory
        ]
        if not files:
            raise DumpUnreadableError(Message.of("dumps.plain.files_gone"), path=listing.directory)
        indexes, damaged = read_indexes((file.file for file in files), Bounds.around(dump.path))
        tensors = _with_names(_read_files(files, indexes), is_checkpoint=bool(indexes))
        by_node, problems = _by_node(tensors)
        problems += (*damaged, *missing_shards([file.file for file in files], indexes))
        whole = {node: dequantised(records) for node, records in by_node.items()}
        return _build_slice(listing, whole, problems)


def _understood(files: Iterable[_TensorFile]) -> Iterator[Message]:
    """Say what was read from the names of files."""
    counts = Counter(_kind_of_name(file) for file in files if file.name)
    for kind, number in sorted(counts.items()):
        yield Message.of(f"dumps.plain.names.{kind}", count=number)


def _kind_of_name(file: _TensorFile) -> str:
    kinds = {
        "call": parse_file_name(printable(file.file.stem)),
        "role": _ROLE.fullmatch(file.name),
        "holder": file.file.suffix in _HOLDERS,
        "parameter": _PARAMETER.fullmatch(file.name),
    }
    return next((kind for kind, fits in kinds.items() if fits), "value")


def _first_tensor_file(folder: Path, bounds: Bounds) -> Path | None:
    files = filter(_may_hold_tensors, files_in(folder, MOST_ENTRIES, bounds=bounds))
    return next((file for file in files if looks_like(file, container_of(file))), None)


class _Search:
    """Looks for the tensor files of a dump; what it passes over is a problem."""

    def __init__(self, root: Path, problems: list[Problem]) -> None:
        self._root, self._problems = root, problems
        self._bounds = Bounds.around(root)
        self._are_numbers_tokens = _are_numbers_tokens(root)

    def files(self, start: Path) -> Iterator[_TensorFile]:
        """Yield the tensor files at or below a path, in natural order."""
        if start.is_file():
            yield self._placed(start, None if start == self._root else self._bounds.refusal(start))
            return
        waiting = [start]
        while waiting:
            files, folders = self._look_through(waiting.pop())
            for entry in filter(_may_hold_tensors, files):
                yield self._placed(Path(entry.path), self._bounds.refusal(entry))
            waiting += reversed(folders)

    def _look_through(self, folder: Path) -> tuple[list[Entry], list[Path]]:
        """Return the files in a folder, and the folders that are looked through next."""
        entries = grouped(self._entries(folder), _kind_of_entry)
        if links := entries.get("link"):
            names = first_names([entry.name for entry in links])
            self._report(folder, Message.of("dumps.plain.links_not_followed", links=names))
        if unread := entries.get("unread"):
            names = first_names([entry.name for entry in unread])
            self._report(folder, Message.of("dumps.plain.kinds_not_read", files=names))
        return entries.get("file", []), [Path(entry.path) for entry in entries.get("folder", ())]

    def _entries(self, folder: Path) -> list[Entry]:
        try:
            return sorted(list_folder(folder), key=lambda entry: natural_key(entry.name))
        except OSError as exc:
            self._report(folder, Message.of("dumps.file.unreadable", error=said_by_system(exc)))
            return []

    def _report(self, folder: Path, reason: Message) -> None:
        self._problems.append(Problem(_shown(self._root, folder), reason))

    def _placed(self, file: Path, refusal: Message | None) -> _TensorFile:
        """Take the path of a file apart."""
        root = self._root
        if file == root:
            return _TensorFile(file, Coordinates(), file, "", refusal)
        parts = tuple(map(printable, file.relative_to(root).with_suffix("").parts))
        coordinates = _coordinates(parts, are_numbers_tokens=self._are_numbers_tokens)
        rest = parts[len(coordinates) :]
        place = root.joinpath(*parts[: len(coordinates)]) if rest else file
        return _TensorFile(file, Coordinates(**coordinates), place, ".".join(rest), refusal)


def _kind_of_entry(entry: Entry) -> str:
    """Say what is done with an entry of a folder, by what it is."""
    if not is_folder(entry):
        return "unread" if Path(entry.name).suffix in _UNREAD_SUFFIXES else "file"
    if entry.name.startswith("."):
        return "hidden"
    return "link" if entry.is_symlink() else "folder"


def _may_hold_tensors(entry: Entry | Path) -> bool:
    return Path(entry.name).suffix in CONTAINER_BY_SUFFIX


def _shown(root: Path, path: Path) -> str:
    return printable(os.path.relpath(path, root))


def _are_numbers_tokens(root: Path) -> bool:
    """Tell whether all tensors of a dump lie in numbered folders, as msit numbers its tokens."""
    folders = [folder.name for folder in sub_folders(root)]
    are_numbers = bool(folders) and all(map(_NUMBER.fullmatch, folders))
    return are_numbers and not any(map(_may_hold_tensors, files_in(root)))


def _coordinates(parts: Iterable[str], *, are_numbers_tokens: bool) -> dict[str, Any]:
    """Return what the first folders of a path say of its slice."""
    coordinates: dict[str, Any] = {}
    for part in parts:
        match = _COORDINATE.fullmatch(part)
        if match and match["name"] not in coordinates:
            coordinates[match["name"]] = int(match["value"])
        elif are_numbers_tokens and not coordinates:
            coordinates["token"] = int(part)
        else:
            break
    return coordinates


def _read_files(files: list[_TensorFile], indexes: tuple[Index, ...]) -> list[tuple[str, TensorRecord]]:
    """Describe the tensors of files by name; those that an index promises are there, be it as a problem."""
    named: list[tuple[str, TensorRecord]] = []
    damage: dict[Path, Message] = {}
    is_only = len(files) == 1
    for file in files:
        container = "" if file.refusal else container_of(file.file)  # which looks into the file
        headers, reason = headers_of(file.file, container, file.refusal)
        is_indexed = any(index.names_file(file.file) for index in indexes)
        if reason is not None and is_indexed:
            damage[file.file] = reason
            continue
        is_alone = is_only or is_indexed or is_shard(file.file.name)
        named += _records(file, container, headers, is_only=is_only, is_alone=is_alone)
    return named + list(_not_found(indexes, named, {file.file for file in files}, damage))


def _records(
    file: _TensorFile, container: str, headers: list[TensorHeader], *, is_only: bool, is_alone: bool
) -> Iterator[tuple[str, TensorRecord]]:
    """Describe the tensors of a file by name; the only one of a dump needs none."""
    is_nameless = is_only and len(headers) == 1 and not file.name and "." not in headers[0].entry
    for header in headers:
        name = "" if is_nameless else _full_name(file, header.entry, is_alone=is_alone)
        yield name, record_of(header, file.file, container, Role.OUTPUT, "0")


def _not_found(
    indexes: Iterable[Index],
    named: Iterable[tuple[str, TensorRecord]],
    there: Container[Path],
    damage: Mapping[Path, Message],
) -> Iterator[tuple[str, TensorRecord]]:
    """Yield what stands for the tensors that indexes promise, and that are in no file."""
    entries = {record.location.entry for _, record in named if record.location}
    for index in indexes:
        for name in not_in(index.shards, entries):
            problem = index.why_not(index.shards[name], there, damage)
            yield name, TensorRecord(Role.OUTPUT, "0", "", None, problem=problem)


def _full_name(file: _TensorFile, entry: str, *, is_alone: bool) -> str:
    """Return the name of a tensor: a dotted entry is a full path, any other lies below its file.

    What a file that is named after a path holds by position is what the module of that path gave.
    """
    is_position = entry.replace(".", "").isdecimal()
    is_path = "." in entry and not is_position
    if entry and (is_path or is_alone or not file.name):
        return entry
    if is_position and "." in file.name and not _ROLE.fullmatch(file.name):
        return f"{file.name}.output.{entry}"
    return dotted(file.name, entry)


def _with_names(
    named: list[tuple[str, TensorRecord]], *, is_checkpoint: bool
) -> Iterator[tuple[str, TensorRecord]]:
    """Find the nodes of tensors; if most are weights, all that lie together with them are parameters."""
    weights = sum(_PARAMETER.fullmatch(name) is not None for name, _ in named)
    is_checkpoint = is_checkpoint or 2 * weights > len(named)
    for name, record in named:
        said = _said_by_msprobe(name, record) or _said_by_role(name) or _said_by_parameter(name)
        said = said or _said_by_neighbours(name, record, is_checkpoint=is_checkpoint)
        yield said.node, replace(record, role=said.role, key=said.key)


def _said_by_msprobe(name: str, record: TensorRecord) -> FileName | None:
    """Read the name of a file, or of a tensor in one, as msprobe writes it; a file on its own has no name."""
    location = record.location
    if name and location and (saved := parse_file_name(printable(location.file.stem))):
        return replace(saved, key=dotted(saved.key, location.entry))
    return parse_file_name(name)


def _said_by_role(name: str) -> FileName | None:
    match = _ROLE.fullmatch(name)
    key = (match["key"] or "0").replace("_", ".") if match else ""
    return FileName(match["node"] or _NAMELESS, Role(match["role"]), key) if match else None


def _said_by_parameter(name: str) -> FileName | None:
    match = _PARAMETER.fullmatch(name)
    role = Role.GRADIENT if match and match["grad"] else Role.PARAMETER
    return FileName(match["node"], role, match["key"]) if match else None


def _said_by_neighbours(name: str, record: TensorRecord, *, is_checkpoint: bool) -> FileName:
    """Take what is named otherwise for a weight in a checkpoint, else for output 0 of a node."""
    node, _, key = name.rpartition(".")
    is_alone = record.location is not None and not record.location.entry
    if is_checkpoint and node and not is_alone:
        return FileName(node, Role.PARAMETER, key)
    return FileName(name or _NAMELESS, record.role, record.key)


def _by_node(
    tensors: Iterable[tuple[str, TensorRecord]],
) -> tuple[dict[str, list[TensorRecord]], list[Problem]]:
    """Group tensors by node; "0#1" is the second of the same name, and a problem."""
    by_node: dict[str, list[TensorRecord]] = defaultdict(list)
    problems: list[Problem] = []
    for (node, record), occurrence in counted(tensors, lambda named: (named[0], named[1].label)):
        if occurrence:
            tensor_twice = Message.of("dumps.file.tensor_twice", tensor=record.label, node=node)
            file = printable(record.location.file.name) if record.location else ""
            problems.append(Problem(file, tensor_twice))
        by_node[node].append(replace(record, key=numbered(record.key, occurrence)))
    return by_node, problems


def _build_slice(
    listing: SliceListing, by_node: Mapping[str, Sequence[TensorRecord]], problems: list[Problem]
) -> Slice:
    is_call = gathered((is_call_name(name), name) for name in by_node)
    calls, moved = calls_of({name: by_node[name] for name in is_call[True]})
    modules = {name: by_node[name] for name in is_call[False]}
    names = sorted({*modules, *chain.from_iterable(map(enclosing_paths, modules))}, key=natural_key)
    parents = {name: module_around(name) for name in names}
    labels = {name: last_part(name) for name in names}
    flows, late = value_flows(modules, parents), takers_of_unmade(modules, parents)
    order, count = finish_order(children_of(names, parents), labels, flows, late)
    nodes = (
        module_node(name, module_path(name), at, parents[name], tuple(modules.get(name, ())))
        for at, name in enumerate(order, start=len(calls))
    )
    origin = OrderOrigin(OrderSource.NAMES, Message.of("dumps.order.from_names", orderings=count + moved))
    return Slice(listing, (*calls, *nodes), origin, tuple(problems))
