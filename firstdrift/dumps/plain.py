"""Read a folder of tensor files whose names are node paths, or a single such file.

    run/token3/layers/0/attn.output.0.npy   →   output.0 of layers.0.attn in token 3
    run/model.safetensors: "layers.0.attn.q_proj.weight"   →   parameter weight of layers.0.attn.q_proj

Nothing but names is known, so they decide: coordinates from folders (step0, rank_1, token3, or numbers
alone), role and key from the end of a name, and the order of execution from all of it. Tensor files of
msprobe that have lost their dump.json still bear the names of the calls (`msprobe_files`).
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.checkpoint import Index, dequantised, is_shard, missing_shards, read_indexes
from firstdrift.dumps.containers.contents import TensorHeader
from firstdrift.dumps.execution_order import finish_order, natural_key, value_flows
from firstdrift.dumps.msprobe.file_names import calls_of, is_call_name, parse_file_name
from firstdrift.dumps.reader import DumpReader
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import (
    MOST_ENTRIES,
    first_names,
    folder_entries,
    is_folder,
    printable,
    search_folders,
)
from firstdrift.dumps.storage.listed_files import problem_of_file
from firstdrift.dumps.storage.tensor_data import CONTAINER_BY_SUFFIX, container_of, looks_like, read_headers
from firstdrift.errors import DumpNotRecognisedError, DumpUnreadableError, TensorUnreadableError
from firstdrift.files import list_folder, said_by_system
from firstdrift.model.names import enclosing_paths, is_beyond_reason, module_path
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import (
    Coordinates,
    Dump,
    OrderOrigin,
    OrderSource,
    Problem,
    Slice,
    SliceListing,
)
from firstdrift.model.tensor import DataLocation, Role, TensorRecord
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


class _Tensor(Struct, frozen=True):
    """A tensor and the node that its name puts it in."""

    node: str
    record: TensorRecord


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
        bounds = Bounds.around(path)
        search = search_folders(
            path,
            lambda folder: _first_tensor_file(folder, bounds) is not None,
            deepest=_DEEPEST_SEARCH,
            most=1,
        )
        if not search.folders:
            return ()
        file = _first_tensor_file(search.folders[0], bounds) or search.folders[0]
        found = Message.of("dumps.plain.tensor_file", file=_shown(path, file))
        return found, Message.of("dumps.plain.no_other_format")

    def open_dump(self, path: Path) -> Dump:
        """Find the tensor files and group them by the coordinates in the names of their folders.

        Raises:
            DumpNotRecognisedError: there is no tensor file.
        """
        places: dict[Coordinates, Path] = {}
        problems: list[Problem] = []
        files = list(_tensor_files(path, path, problems))
        for file in files:
            place = places.setdefault(file.coordinates, file.place)
            if place != file.place:
                slice_name = file.coordinates.name()
                reason = Message.of("dumps.plain.slice_twice", holder=printable(place.name), slice=slice_name)
                problems.append(Problem(_shown(path, file.file), reason))
        if not places:
            raise DumpNotRecognisedError(Message.of("dumps.plain.no_tensor_file"), path=path)
        listings = [SliceListing(coordinates, place) for coordinates, place in places.items()]
        return Dump(
            path=path,
            format=self.format,
            evidence=(*self.recognise(path), *_understood(files)),
            slices=tuple(sorted(listings, key=lambda listing: listing.coordinates.sort_key())),
            problems=tuple(problems),
        )

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the headers of the files of a slice.

        Raises:
            DumpUnreadableError: the files are gone.
        """
        files = [
            file
            for file in _tensor_files(dump.path, listing.directory, [])
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
    if parse_file_name(printable(file.file.stem)):
        return "call"
    if _ROLE.fullmatch(file.name):
        return "role"
    if file.file.suffix in _HOLDERS:
        return "holder"
    return "parameter" if _PARAMETER.fullmatch(file.name) else "value"


def _first_tensor_file(folder: Path, bounds: Bounds) -> Path | None:
    entries = folder_entries(folder, MOST_ENTRIES, bounds=bounds)
    files = (entry for entry, is_folder in entries if not is_folder and entry.suffix in CONTAINER_BY_SUFFIX)
    return next((file for file in files if looks_like(file, container_of(file))), None)


def _tensor_files(root: Path, start: Path, problems: list[Problem]) -> Iterator[_TensorFile]:
    """Give the tensor files at or below `start` in natural order; what is passed over is a problem."""
    bounds = Bounds.around(root)
    are_numbers_tokens = _are_numbers_tokens(root)
    if start.is_file():
        refusal = None if start == root else bounds.refusal(start)
        yield replace(_placed(root, start, are_numbers_tokens=are_numbers_tokens), refusal=refusal)
        return
    waiting = [start]
    while waiting:
        folder = waiting.pop()
        try:
            entries = sorted(list_folder(folder), key=lambda entry: natural_key(entry.name))
        except OSError as exc:
            unreadable = Message.of("dumps.file.unreadable", error=said_by_system(exc))
            problems.append(Problem(_shown(root, folder), unreadable))
            continue
        folders = [entry for entry in entries if is_folder(entry) and not entry.name.startswith(".")]
        files = [entry for entry in entries if not is_folder(entry)]
        links = [entry.name for entry in folders if entry.is_symlink()]
        unread = [entry.name for entry in files if Path(entry.name).suffix in _UNREAD_SUFFIXES]
        if links:
            reason = Message.of("dumps.plain.links_not_followed", links=first_names(links))
            problems.append(Problem(_shown(root, folder), reason))
        if unread:
            reason = Message.of("dumps.plain.kinds_not_read", files=first_names(unread))
            problems.append(Problem(_shown(root, folder), reason))
        for entry in files:
            if Path(entry.name).suffix in CONTAINER_BY_SUFFIX:
                placed = _placed(root, Path(entry.path), are_numbers_tokens=are_numbers_tokens)
                refusal = bounds.refusal(entry)
                yield replace(placed, refusal=refusal) if refusal else placed
        waiting += [Path(entry.path) for entry in reversed(folders) if not entry.is_symlink()]


def _shown(root: Path, path: Path) -> str:
    return printable(os.path.relpath(path, root))


def _are_numbers_tokens(root: Path) -> bool:
    """Tell whether all tensors of a dump lie in numbered folders, as msit numbers its tokens."""
    entries = folder_entries(root)
    folders = [entry.name for entry, is_folder in entries if is_folder]
    has_files = any(entry.suffix in CONTAINER_BY_SUFFIX for entry, is_folder in entries if not is_folder)
    return bool(folders) and not has_files and all(map(_NUMBER.fullmatch, folders))


def _placed(root: Path, file: Path, *, are_numbers_tokens: bool) -> _TensorFile:
    if file == root:
        return _TensorFile(file, Coordinates(), file, "")
    parts = tuple(map(printable, file.relative_to(root).with_suffix("").parts))
    found: dict[str, Any] = {}
    for at, part in enumerate(parts):
        match = _COORDINATE.fullmatch(part)
        if match and match["name"] not in found:
            found[match["name"]] = int(match["value"])
        elif are_numbers_tokens and at == 0:
            found["token"] = int(part)
        else:
            break
    rest = parts[len(found) :]
    place = root.joinpath(*parts[: len(found)]) if rest else file
    return _TensorFile(file, Coordinates(**found), place, ".".join(rest))


def _read_files(files: list[_TensorFile], indexes: tuple[Index, ...]) -> list[tuple[str, TensorRecord]]:
    """Describe the tensors of files by name; those that an index promises are there, be it as a problem."""
    found: list[tuple[str, TensorRecord]] = []
    damage: dict[Path, Message] = {}
    for file in files:
        container = "" if file.refusal else container_of(file.file)  # which looks into the file
        headers, reason = _headers(file, container)
        is_indexed = any(index.names_file(file.file) for index in indexes)
        is_alone = len(files) == 1 or is_indexed or is_shard(file.file.name)
        if reason is not None and is_indexed:
            damage[file.file] = reason
            continue
        if reason is not None:
            headers = [TensorHeader("", "", None, problem=reason)]
        is_only = len(files) == len(headers) == 1 and not file.name and "." not in headers[0].entry
        found += [
            (
                "" if is_only else _full_name(file, header.entry, is_alone=is_alone),
                _record(file, container, header),
            )
            for header in headers
        ]
    known = {record.location.entry for _, record in found if record.location}
    there = {file.file for file in files}
    for index in indexes:
        for name, shard in index.shards.items():
            if name not in known:
                problem = index.why_not(shard, there, damage)
                found.append((name, TensorRecord(Role.OUTPUT, "0", "", None, problem=problem)))
    return found


def _record(file: _TensorFile, container: str, header: TensorHeader) -> TensorRecord:
    return TensorRecord(
        role=Role.OUTPUT,
        key="0",
        dtype=header.dtype,
        shape=header.shape,
        digest=header.digest,
        location=None if file.refusal else DataLocation(file.file, container, header.entry),
        problem=header.problem and problem_of_file(printable(file.file.name), header.problem),
    )


def _headers(file: _TensorFile, container: str) -> tuple[list[TensorHeader], Message | None]:
    """Return the headers of a file, or why there are none."""
    if file.refusal:
        return [], file.refusal
    try:
        headers = read_headers(file.file, container)
    except TensorUnreadableError as exc:
        return [], exc.message
    return headers, None if headers else Message.of("dumps.file.no_tensor")


def _full_name(file: _TensorFile, entry: str, *, is_alone: bool) -> str:
    """Return the name of a tensor: a dotted entry is a full path, any other lies below its file.

    What a file that is named after a path holds by position is what the module of that path gave.
    """
    is_position = entry.replace(".", "").isdecimal()
    if entry and ((not is_position and "." in entry) or is_alone or not file.name):
        return entry
    if is_position and "." in file.name and not _ROLE.fullmatch(file.name):
        return f"{file.name}.output.{entry}"
    return ".".join(part for part in (file.name, entry) if part)


def _with_names(found: list[tuple[str, TensorRecord]], *, is_checkpoint: bool) -> Iterator[_Tensor]:
    """Find the nodes of tensors; if most are weights, all that lie together with them are parameters."""
    weights = sum(_PARAMETER.fullmatch(name) is not None for name, _ in found)
    is_checkpoint = is_checkpoint or 2 * weights > len(found)
    for name, record in found:
        yield _named(name, record, is_checkpoint=is_checkpoint)


def _named(name: str, record: TensorRecord, *, is_checkpoint: bool) -> _Tensor:
    """Take node, role and key from a name; one that tells no role is the node whose output 0 this is."""
    if saved := _named_by_msprobe(name, record):
        return saved
    if match := _ROLE.fullmatch(name):
        key = (match["key"] or "0").replace("_", ".")
        return _Tensor(match["node"] or _NAMELESS, replace(record, role=Role(match["role"]), key=key))
    if match := _PARAMETER.fullmatch(name):
        role = Role.GRADIENT if match["grad"] else Role.PARAMETER
        return _Tensor(match["node"], replace(record, role=role, key=match["key"]))
    node, _, key = name.rpartition(".")
    lies_in_checkpoint = is_checkpoint and record.location is not None and bool(record.location.entry)
    if node and (lies_in_checkpoint or (is_checkpoint and record.location is None)):
        return _Tensor(node, replace(record, role=Role.PARAMETER, key=key))
    return _Tensor(name or _NAMELESS, record)


def _named_by_msprobe(name: str, record: TensorRecord) -> _Tensor | None:
    """Read the name of a file, or of a tensor in one, as msprobe writes it; a file on its own has no name."""
    location = record.location
    stem = printable(location.file.stem) if name and location is not None else ""
    if saved := parse_file_name(stem):
        entry = location.entry if location is not None else ""
        key = ".".join(filter(None, (saved.key, entry)))
        return _Tensor(saved.node, replace(record, role=saved.role, key=key))
    if saved := parse_file_name(name):
        return _Tensor(saved.node, replace(record, role=saved.role, key=saved.key))
    return None


def _by_node(tensors: Iterable[_Tensor]) -> tuple[dict[str, list[TensorRecord]], list[Problem]]:
    """Group tensors by node; "0#1" is the second of the same name, and a problem."""
    by_node: dict[str, list[TensorRecord]] = defaultdict(list)
    problems: list[Problem] = []
    seen: Counter[tuple[str, Role, str]] = Counter()
    for tensor in tensors:
        record = tensor.record
        count = seen[tensor.node, record.role, record.key]
        seen[tensor.node, record.role, record.key] += 1
        if count:
            tensor_twice = Message.of("dumps.file.tensor_twice", tensor=record.label, node=tensor.node)
            problems.append(Problem(_file_name(record), tensor_twice))
            record = replace(record, key=f"{record.key}#{count}")
        by_node[tensor.node].append(record)
    return by_node, problems


def _file_name(record: TensorRecord) -> str:
    return printable(record.location.file.name) if record.location else ""


def _build_slice(
    listing: SliceListing, by_node: Mapping[str, Sequence[TensorRecord]], problems: list[Problem]
) -> Slice:
    calls, kept = calls_of({name: found for name, found in by_node.items() if is_call_name(name)})
    by_node = {name: found for name, found in by_node.items() if not is_call_name(name)}
    names = sorted({*by_node, *(path for name in by_node for path in enclosing_paths(name))}, key=natural_key)
    parents = {name: None if is_beyond_reason(name) else name.rpartition(".")[0] or None for name in names}
    children: dict[str | None, list[str]] = defaultdict(list)
    for name in names:
        children[parents[name]].append(name)
    labels = {name: name.rpartition(".")[2] for name in names}
    order, count = finish_order(children, labels, value_flows(by_node, parents))
    nodes = tuple(
        Node(
            name=name,
            path=module_path(name),
            kind=NodeKind.MODULE,
            type_name="",
            direction=Direction.NONE,
            call=0,
            order=at,
            parent=parents[name],
            tensors=tuple(by_node.get(name, ())),
        )
        for at, name in enumerate(order, start=len(calls))
    )
    origin = OrderOrigin(OrderSource.NAMES, Message.of("dumps.order.from_names", orderings=count + kept))
    return Slice(listing, (*calls, *nodes), origin, tuple(problems))
