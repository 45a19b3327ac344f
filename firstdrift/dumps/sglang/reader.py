"""Read the tensors that SGLang's dumper saves: one file each, its name tells all.

    step=0___rank=1___dump_index=7___name=non_intrusive__model.layers.2.mlp.output___layer_id=2.pt
    step=0___rank=1___dump_index=9___name=attn_input___layer_id=2.pt         said in the program
    step=0___rank=1___dump_index=3___name=grad__attn_input___layer_id=2.pt   its gradient
    step=0___rank=1___dump_index=1___name=param__model.norm.weight.pt        a parameter
    forward_pass_id=1___rank=0___name=logits___dump_index=2.pt               by earlier releases

A file holds {"value": tensor, "meta": {...}}, or the tensor alone by earlier releases. Where its `dims` were
said, meta tells what the rank holds of the whole (`dims`). Tensors were saved in the order of `dump_index`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.reader import DumpReader
from firstdrift.dumps.recorded_calls import Recorded, nodes_of
from firstdrift.dumps.sglang.dims import CONTAINER, Portion, parse_dims, ranks_in, written
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import (
    Listed,
    first_named,
    list_named,
    passed_over,
    printable,
    search_folders,
)
from firstdrift.dumps.storage.tensor_data import (
    NO_TENSOR,
    dotted,
    headers_of,
    no_header,
    record_of,
    saved_value,
)
from firstdrift.errors import DumpNotRecognisedError, TensorUnreadableError
from firstdrift.model.node import Direction
from firstdrift.model.slice import Coordinates, Dump, Slice, SliceListing
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.wording.message import Message

_SUFFIX: Final = ".pt"
_SEPARATOR: Final = re.compile(r"___(?=[A-Za-z_][A-Za-z0-9_]*=)", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_STEPS: Final = ("step", "forward_pass_id")
_KNOWN: Final = frozenset({*_STEPS, "rank", "dump_index", "name", "layer_id", "recompute_status"})
_LOOKED_AT: Final = 50
_DEEPEST: Final = 2

_HOOKED: Final = "non_intrusive__"
_GRADIENT: Final = "grad__"
_PARAMETER: Final = "param__"
_ENTRIES: Final = frozenset({"", "value"})
"""Where the tensors lie in a file, at the top; beside them lies what is said of them."""

_HOOK: Final = re.compile(
    rf"{_HOOKED}(?:(?P<node>.+)\.)?(?P<role>inputs|output)(?:\.(?P<key>[^.]+(?:\.[^.]+)*))?", re.DOTALL
)


class _Saved(Struct, frozen=True):
    """What the name of a file says.

    Attributes:
        file: the file.
        coordinates: of its slice.
        index: its place in the order of saving.
        path: of the module or value.
        role: of the tensor to it.
        key: likewise.
        direction: of the pass that it is of.
    """

    file: Listed
    coordinates: Coordinates
    index: int
    path: str
    role: Role
    key: str
    direction: Direction


class SglangReader(DumpReader):
    """The `DumpReader` of SGLang's dumper."""

    format = "sglang"
    title = Message.of("dumps.sglang.title")

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that SGLang's dumper wrote the files of a path, or of the one folder below."""
        folder = _folder(path)
        name = folder and _first_name(folder)
        return (Message.of("dumps.sglang.file", file=printable(name)),) if name else ()

    def is_marked(self, folder: Path) -> bool:
        """Tell whether such files lie in a folder, or in the one folder below it."""
        return _folder(folder) is not None

    def open_dump(self, path: Path) -> Dump:
        """List the steps and ranks of a dump, from the names of its files."""
        folder = _folder(path)
        if folder is None:
            raise DumpNotRecognisedError(Message.of("dumps.sglang.no_files"), path=path)
        saved, unknown = _read_names(folder, Bounds.around(path))
        listings = [SliceListing(at, folder) for at in dict.fromkeys(tensor.coordinates for tensor in saved)]
        problems = passed_over(printable(folder.name), unknown)
        return self.dump(path, listings, problems, {"framework": "pytorch"})

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the headers of the files of a step and rank."""
        saved, _ = _read_names(listing.directory, Bounds.around(dump.path))
        mine = [tensor for tensor in saved if tensor.coordinates == listing.coordinates]
        return Slice(listing, nodes_of(map(_recorded, sorted(mine, key=lambda tensor: tensor.index))))


def _folder(path: Path) -> Path | None:
    """Return the folder of a run: the path itself, or the only one below it."""
    found = search_folders(path, _first_name, deepest=_DEEPEST, most=2).folders
    return found[0] if len(found) == 1 else None


def _first_name(folder: Path) -> str | None:
    return first_named(folder, _tags, _LOOKED_AT)


def _tags(file: str) -> dict[str, str] | None:
    """Take the name of a file apart; None if the dumper never gives such a name."""
    # Each part but the first is a name, "=" and a value, for it was told by them.
    parts = _SEPARATOR.split(file.removesuffix(_SUFFIX))
    tags = dict(part.partition("=")[::2] for part in parts)
    is_whole = file.endswith(_SUFFIX) and len(tags) == len(parts) and "=" in parts[0]
    is_placed = all(_is_number(tags, key) for key in ("rank", "dump_index")) and _step_of(tags) is not None
    return tags if is_whole and is_placed and tags.get("name") else None


def _is_number(tags: Mapping[str, str], key: str) -> bool:
    return _NUMBER.fullmatch(tags.get(key, "")) is not None


def _step_of(tags: Mapping[str, str]) -> int | None:
    return next((int(tags[key]) for key in _STEPS if _is_number(tags, key)), None)


def _read_names(folder: Path, bounds: Bounds) -> tuple[list[_Saved], list[str]]:
    named, unknown = list_named(folder, bounds, _tags)
    return [
        _saved(file, {key: printable(value) for key, value in tags.items()}) for file, tags in named
    ], unknown


def _saved(file: Listed, tags: Mapping[str, str]) -> _Saved:
    name = tags["name"].removeprefix(_GRADIENT)
    is_gradient = name != tags["name"]
    path, role, key = _place(name, tags.get("layer_id", ""))
    others = [f"{tag}={value}" for tag, value in tags.items() if tag not in _KNOWN]
    if others and role is Role.OUTPUT and not name.startswith(_HOOKED):
        path = f"{path}[{','.join(others).replace('.', '_')}]"
    return _Saved(
        file=file,
        coordinates=Coordinates(step=_step_of(tags), rank=int(tags["rank"])),
        index=int(tags["dump_index"]),
        path=path,
        role=Role.GRADIENT if is_gradient else role,
        key=key,
        direction=Direction.BACKWARD if is_gradient and role is not Role.PARAMETER else Direction.FORWARD,
    )


def _place(name: str, layer: str) -> tuple[str, Role, str]:
    """Return path, role and key of what was saved under a name, in a layer if one is said."""
    if name.startswith(_PARAMETER):
        path, _, key = name.removeprefix(_PARAMETER).rpartition(".")
        return path, Role.PARAMETER, key
    if hooked := _HOOK.fullmatch(name):
        return hooked["node"] or "", Role(hooked["role"].removesuffix("s")), hooked["key"] or "0"
    return (f"layers.{layer}.{name}" if layer.isdecimal() else name), Role.OUTPUT, "0"


def _recorded(saved: _Saved) -> Recorded:
    portion, problem = _said_of(saved.file)
    records = tuple(_with_portion(record, portion, problem) for record in _records(saved))
    return Recorded(saved.path, saved.role, saved.key, records, saved.direction)


def _said_of(file: Listed) -> tuple[Portion | None, Message | None]:
    """Return what a file says of its tensor and the whole, and what of that nobody understands."""
    try:
        value = None if file.refusal else saved_value(file.path)
    except TensorUnreadableError:  # its tensor says so
        return None, None
    match value:
        case {"meta": {"dims": str(dims)} as meta} if parse_dims(dims) is not None:
            return Portion("", printable(dims), ranks_in(meta)), None
        case {"meta": {"dims": str(dims)}}:
            return None, Message.of("dumps.sglang.unknown_dims", dims=repr(printable(dims)[:80]))
    return None, None


def _with_portion(record: TensorRecord, portion: Portion | None, problem: Message | None) -> TensorRecord:
    if record.location is None or record.problem is not None:
        return record
    if portion is None:
        return record if problem is None else replace(record, problem=problem)
    entry = written(Portion(record.location.entry, portion.dims, portion.ranks))
    return replace(record, location=replace(record.location, container=CONTAINER, entry=entry))


def _records(saved: _Saved) -> list[TensorRecord]:
    """Describe the tensors of a file: one, unless what was saved held several."""
    file = saved.file.path
    found, _ = headers_of(file, "pt", saved.file.refusal)
    headers = [header for header in found if header.entry.partition(".")[0] in _ENTRIES]
    return [
        record_of(header, file, "pt", saved.role, dotted(saved.key, header.entry.partition(".")[2]))
        for header in headers or [no_header(NO_TENSOR)]
    ]
