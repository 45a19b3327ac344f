"""Tell which format a dump is in and hand it to that format's reader.

    open_dump("runs/golden")   →   Dump(format="msit-torch", slices=…)   →   read_slice(dump, slices[0])

Formats with marks of their own are tried first; a folder of tensor files is plain only if nothing in it
has the marks of another format.
"""

import os
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, cast

from msgspec.structs import replace

from firstdrift.dumps.reader import Basis, DumpReader, Part
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import first_names, is_file, printable, refused_links, search_folders
from firstdrift.errors import (
    DumpError,
    DumpNotFoundError,
    DumpNotRecognisedError,
    DumpUnreadableError,
    PathOutsideRootsError,
)
from firstdrift.files import OutsideError, require_confined
from firstdrift.groups import firsts
from firstdrift.model.names import LONGEST_NAME, MOST_PARTS, is_beyond_reason
from firstdrift.model.slice import Dump, Problem, Slice, SliceListing
from firstdrift.wording.message import Message, joined

READERS: Final = {
    "msprobe": "msprobe.reader:MsprobeReader",
    "msprobe-debug": "msprobe.reader:MsprobeDebugReader",
    "msit-torch": "msit.reader:MsitTorchReader",
    "msit-atb": "atb.reader:MsitAtbReader",
    "msprobe-atb": "atb.reader:MsprobeAtbReader",
    "msprobe-aclgraph": "aclgraph:AclgraphReader",
    "torchair-fx": "torchair.reader:TorchairFxReader",
    "torchair-ge": "torchair.reader:TorchairGeReader",
    "hf-debug-tree": "hf_debug_tree:HfDebugTreeReader",
    "sglang": "sglang.reader:SglangReader",
    "passes": "passes:PassesReader",
    "tensorrt-llm": "tensorrt_llm:TensorrtLlmReader",
    "msprobe-vis": "msprobe_vis:MsprobeVisReader",
    "polygraphy": "polygraphy:PolygraphyReader",
    "torchtitan": "titan:TitanReader",
    "debug-mode": "debug_mode:DebugModeReader",
    "llama-cpp": "llama_cpp:LlamaCppReader",
    "plain": "plain:PlainReader",
}
"""The reader of each format, in the order in which they are asked; each is imported when first asked."""

_DEEPEST_SEARCH = 4
_MOST_DUMPS = 6
_MOST_MARKED = 64
"""A dump may have many marked folders: one for each rank of each step."""


def open_dump(path: Path) -> Dump:
    """List the slices of the dump at a path.

    Raises:
        DumpNotFoundError: there is nothing at the path.
        DumpNotRecognisedError: no dump lies there, or several do.
        DumpUnreadableError: the path may not be read, or a file that all else hangs on is damaged.
        PathOutsideRootsError: it leads out of the directories that this process is confined to.
    """
    _require_readable(path)
    recognised = recognise(path)
    if recognised is not None:
        return _reader(recognised[0]).open_dump(path)
    raise _why_not(path)


def recognise(path: Path) -> tuple[str, tuple[Message, ...]] | None:
    """Return the format of the dump at a path and the evidence for it; None if there is no dump.

    Looks at a bounded number of entries, so that every folder of a file browser can be asked.
    """
    if not os.path.exists(path):  # noqa: PTH110 (never raises)
        return None
    for name in READERS:
        reader = _reader(name)
        if reader.is_last_resort and not is_file(path) and (_part_around(path) or _marked_folders(path)):
            return None
        if evidence := reader.recognise(path):
            return name, evidence
    return None


def dumps_below(path: Path) -> list[Path]:
    """Find the dumps in a folder that is none itself, nearest first, at most six; none of plain files."""
    return [] if _part_around(path) else _whole_dumps(path, _marked_folders(path))[:_MOST_DUMPS]


def read_slice(dump: Dump, listing: SliceListing) -> Slice:
    """Read the nodes and tensors of the slice of one process, without tensor data.

    Raises:
        DumpUnreadableError: a file that all else hangs on is damaged.
    """
    return _with_names_beyond_reason(dump, _reader(dump.format).read_slice(dump, listing))


def _with_names_beyond_reason(dump: Dump, read: Slice) -> Slice:
    """Say of how many nodes the modules around are not looked for, so long are their names."""
    count = sum(is_beyond_reason(node.name) for node in read.nodes)
    if not count:
        return read
    reason = Message.of("dumps.names_too_long", count=count, parts=MOST_PARTS, characters=LONGEST_NAME)
    return replace(read, problems=(*read.problems, Problem(printable(dump.path.name), reason)))


def bases_of(dump: Dump) -> Mapping[SliceListing, Basis]:
    """Say what decides what `read_slice` finds in each slice; {} where anything in the dump may."""
    return _reader(dump.format).bases(dump)


def read_stacks(dump: Dump, listing: SliceListing) -> Mapping[str, tuple[str, ...]]:
    """Return the Python call stack of each node name, innermost frame first; {} if none were recorded."""
    return _reader(dump.format).read_stacks(dump, listing)


@cache
def _reader(name: str) -> DumpReader:
    module, _, reader = READERS[name].partition(":")
    return cast("DumpReader", getattr(import_module(f"firstdrift.dumps.{module}"), reader)())


def _readers() -> Iterator[DumpReader]:
    return map(_reader, READERS)


def _require_readable(path: Path) -> None:
    denied = Message.of("dumps.not_permitted")
    try:
        path.stat()
    except PermissionError as exc:
        raise DumpUnreadableError(denied, path=path) from exc
    except (OSError, ValueError) as exc:
        raise DumpNotFoundError(Message.of("dumps.nothing_here"), path=path) from exc
    try:
        require_confined(path)
    except OutsideError as exc:
        raise PathOutsideRootsError(exc.message, hint=Message.of("dumps.choose_below_roots")) from exc
    except OSError as exc:
        raise DumpUnreadableError(Message.of("dumps.not_readable", error=exc.strerror), path=path) from exc
    if not os.access(path, os.R_OK | os.X_OK if path.is_dir() else os.R_OK):
        raise DumpUnreadableError(denied, path=path)


def _why_not(path: Path) -> DumpError:
    if part := _part_around(path):
        return DumpNotRecognisedError(part.message, path=path, hint=part.hint)
    marked = _marked_folders(path)
    whole = _whole_dumps(path, marked)
    if len(whole) > 1:
        names = first_names([str(folder.relative_to(path)) for folder in whole], _MOST_DUMPS)
        several = Message.of("dumps.several", dumps=names)
        return DumpNotRecognisedError(several, path=path, hint=Message.of("dumps.choose_one"))
    if whole and recognise(whole[0]):
        inside = Message.of("dumps.one_inside", dump=str(whole[0].relative_to(path)))
        return DumpNotRecognisedError(inside, path=path, hint=Message.of("dumps.choose_that_one"))
    if whole:
        damaged = next((reader.title for reader in _readers() if reader.is_marked(whole[0])), None)
        return DumpUnreadableError(Message.of("dumps.damaged", format=damaged), path=whole[0])
    return _no_dump(path)


def _no_dump(path: Path) -> DumpError:
    """Say what would have made a path a dump, and which links in it were not followed."""
    from firstdrift.dumps.storage.tensor_data import CONTAINER_BY_SUFFIX

    marks = tuple(mark for reader in _readers() for mark in reader.marks)
    reason = Message.of("dumps.none", marks=marks, suffixes=tuple(CONTAINER_BY_SUFFIX))
    hint = Message.of("dumps.choose_folder_of_tool")
    if links := firsts(refused_links(path, Bounds.around(path))):
        names = first_names(links, _MOST_DUMPS)
        reason = joined(reason, Message.of("dumps.link.not_followed", links=names))
        hint = Message.of("dumps.choose_folder_or_copy")
    return DumpNotRecognisedError(reason, path=path, hint=hint)


def _whole_dumps(path: Path, marked: list[Path]) -> list[Path]:
    """Return the dumps that marked folders below a path belong to; the folder if it makes none.

    They are at most one more than are named.
    """
    found: list[Path] = []
    for folder in marked:
        if len(found) <= _MOST_DUMPS and not any(map(folder.is_relative_to, found)):
            above = [folder, *folder.parents]
            around = above[: above.index(path)]
            found.append(next(filter(recognise, reversed(around)), folder))
    return found


def _part_around(path: Path) -> Part | None:
    """Tell whether a path lies inside a dump of a format that is opened from further above."""
    name = path.absolute().as_posix()
    parts = (reader.part for reader in _readers())
    return next((part for part in parts if part is not None and part.path.search(name)), None)


def _marked_folders(path: Path) -> list[Path]:
    """Find the folders with marks of a format, at a path or below it, as many as are looked at."""
    return search_folders(path, _is_marked, deepest=_DEEPEST_SEARCH, most=_MOST_MARKED).folders


def _is_marked(folder: Path) -> bool:
    return any(reader.is_marked(folder) for reader in _readers())
