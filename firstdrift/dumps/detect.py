"""Tell which format a dump is in and hand it to that format's reader.

    open_dump("runs/golden")   →   Dump(format="msit-torch", slices=…)   →   read_slice(dump, slices[0])

Formats with marks of their own are tried first; a folder of tensor files is plain only if nothing in it
belongs to another format, be it one that cannot be read yet.
"""

import os
import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import cast

from msgspec.structs import replace

from firstdrift.dumps.reader import DumpReader
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import is_file, printable, refused_links, search_folders, sub_folders
from firstdrift.dumps.torchair.layout import is_root
from firstdrift.errors import (
    DumpError,
    DumpNotFoundError,
    DumpNotRecognisedError,
    DumpUnreadableError,
    PathOutsideRootsError,
)
from firstdrift.files import OutsideError, require_confined
from firstdrift.model.names import LONGEST_NAME, MOST_PARTS, is_beyond_reason
from firstdrift.model.slice import Dump, Problem, Slice, SliceListing
from firstdrift.plurals import counted

_DEEPEST_SEARCH = 3
_MOST_MARKS = 6
_MARKS = {
    "dump.json": "an msprobe dump",
    "model_tree.json": "a msit torch dump",
    "torch_tensors": "a msit torch dump",
    "debug.json": "a debug dump of msprobe",
    "atb_dump_data": "an ATB dump of msprobe",
}
_READABLE = {
    "an msprobe dump",
    "a debug dump of msprobe",
    "a msit torch dump",
    "an ATB dump of msprobe",
    "an ATB dump of msit",
    "a TorchAir dump",
    "a call tree of transformers",
    "a dump of SGLang",
}
_NO_DUMP = (
    "this is no dump: there is no dump.json or atb_dump_data (msprobe), no torch_tensors, model_tree.json"
    " or tensors (msit) and no file of tensors (.pt, .pth, .npy, .safetensors, .bin)"
)
_MOST_NAMES = 200
_ATB_DEVICE = re.compile(r"[0-9]+_[0-9]+", re.ASCII)
_PART_OF_ATB = "a part of an ATB dump"
_INSIDE = {
    _PART_OF_ATB: re.compile(r"/(?:tensors/[0-9]+_[0-9]+|atb_dump_data)(?:/|$)"),
    "a part of a TorchAir dump": re.compile(r"/worldsize[0-9]+_global_rank[0-9]+(?:/|$)"),
}


def open_dump(path: Path) -> Dump:
    """List the slices of the dump at a path.

    Raises:
        DumpNotFoundError: there is nothing at the path.
        DumpNotRecognisedError: no dump lies there, several do, or one in a format that cannot be read.
        DumpUnreadableError: the path may not be read, or a file that all else hangs on is damaged.
        PathOutsideRootsError: it leads out of the directories that this process is confined to.
    """
    _require_readable(path)
    recognised = recognise(path)
    if recognised is not None:
        return _reader(recognised[0]).open_dump(path)
    raise _why_not(path)


def recognise(path: Path) -> tuple[str, tuple[str, ...]] | None:
    """Return the format of the dump at a path and the evidence for it; None if there is no dump.

    Looks at a bounded number of entries, so that every folder of a file browser can be asked.
    """
    if not os.path.exists(path):  # noqa: PTH110 (never raises)
        return None
    for name in _READERS:
        is_last_resort = name == "plain"
        if is_last_resort and not is_file(path) and _marked_folders(path):
            return None
        if evidence := _reader(name).recognise(path):
            return name, evidence
    return None


def read_slice(dump: Dump, listing: SliceListing) -> Slice:
    """Read the nodes and tensors of the slice of one process, without tensor data.

    Raises:
        DumpUnreadableError: a file that all else hangs on is damaged.
    """
    return _with_names_beyond_reason(dump, _reader(dump.format).read_slice(dump, listing))


def _with_names_beyond_reason(dump: Dump, read: Slice) -> Slice:
    """Say of how many nodes it is not told in which modules they lie, so long are their names."""
    count = sum(is_beyond_reason(node.name) for node in read.nodes)
    if not count:
        return read
    reason = (
        f"{counted(count, 'name')} of more than {MOST_PARTS} parts or {LONGEST_NAME} characters: "
        "the modules around are not looked for"
    )
    return replace(read, problems=(*read.problems, Problem(printable(dump.path.name), reason)))


def read_stacks(dump: Dump, listing: SliceListing) -> Mapping[str, tuple[str, ...]]:
    """Return the Python call stack of each node name, innermost frame first; {} if none were recorded."""
    return _reader(dump.format).read_stacks(dump, listing)


_READERS = {
    "msprobe": "msprobe.reader:MsprobeReader",
    "msprobe-debug": "msprobe.debug_reader:MsprobeDebugReader",
    "msit-torch": "msit.reader:MsitTorchReader",
    "msit-atb": "atb.msit:MsitAtbReader",
    "msprobe-atb": "atb.msprobe:MsprobeAtbReader",
    "msprobe-aclgraph": "aclgraph:AclgraphReader",
    "torchair-fx": "torchair.reader:TorchairFxReader",
    "torchair-ge": "torchair.reader:TorchairGeReader",
    "hf-debug-tree": "hf_debug_tree:HfDebugTreeReader",
    "sglang": "sglang:SglangReader",
    "plain": "plain:PlainReader",
}
"""The reader of each format, in the order in which they are asked, imported when first asked."""


@cache
def _reader(name: str) -> DumpReader:
    module, _, reader = _READERS[name].partition(":")
    return cast("DumpReader", getattr(import_module(f"firstdrift.dumps.{module}"), reader)())


def _require_readable(path: Path) -> None:
    try:
        path.stat()
    except PermissionError as exc:
        raise DumpUnreadableError("this may not be read (permission denied)", path=path) from exc
    except (OSError, ValueError) as exc:
        raise DumpNotFoundError("there is nothing here", path=path) from exc
    try:
        require_confined(path)
    except OutsideError as exc:
        raise PathOutsideRootsError(exc.reason, hint="Choose a folder below one of them") from exc
    except OSError as exc:
        raise DumpUnreadableError(f"this may not be read ({exc.strerror})", path=path) from exc
    if not os.access(path, os.R_OK | os.X_OK if path.is_dir() else os.R_OK):
        raise DumpUnreadableError("this may not be read (permission denied)", path=path)


def _why_not(path: Path) -> DumpError:
    marked = _marked_folders(path)
    readable = _whole_dumps(path, [folder for folder, what in marked if what in _READABLE])
    if len(readable) > 1:
        names = ", ".join(str(folder.relative_to(path)) for folder in readable)
        more = " and more" if len(marked) == _MOST_MARKS else ""
        return DumpNotRecognisedError(
            f"it holds several dumps: {names}{more}", path=path, hint="Name one of them"
        )
    if readable and recognise(readable[0]):
        name = readable[0].relative_to(path)
        return DumpNotRecognisedError(
            f"this is no dump, but it holds one: {name}", path=path, hint="Name that one"
        )
    if readable:
        return DumpUnreadableError("what should make it a dump is damaged or incomplete", path=readable[0])
    if marked and marked[0][1] == _PART_OF_ATB:
        hint = "Name the dump, the folder of a process or one of the numbered folders in it"
        return DumpNotRecognisedError(f"this is {_PART_OF_ATB}", path=path, hint=hint)
    if marked:
        folder, what = marked[0]
        return DumpNotRecognisedError(f"this is {what}, which cannot be read yet", path=folder)
    links, hint = refused_links(path, Bounds.around(path)), "Name the folder that the dumping tool wrote"
    left_out = ""
    if links:
        names = ", ".join(printable(name) for name, _ in links[:_MOST_MARKS])
        more = " and more" if len(links) > _MOST_MARKS else ""
        left_out = f"; links that lead out of it were not followed: {names}{more}"
        hint = f"{hint}, or put copies in place of the links"
    return DumpNotRecognisedError(f"{_NO_DUMP}{left_out}", path=path, hint=hint)


def dumps_below(path: Path) -> list[Path]:
    """Find the dumps in a folder that is none itself, nearest first, at most six; none of plain files."""
    return _whole_dumps(path, [folder for folder, what in _marked_folders(path) if what in _READABLE])


def _whole_dumps(path: Path, marked: list[Path]) -> list[Path]:
    """Return the dump that each marked folder below a path belongs to; the folder if it makes none."""
    below = {folder: [folder, *folder.parents] for folder in marked if folder != path}
    around = {folder: above[: above.index(path)] for folder, above in below.items()}
    whole = (next(filter(recognise, reversed(around.get(folder, []))), folder) for folder in marked)
    return list(dict.fromkeys(whole))


def _marked_folders(path: Path) -> list[tuple[Path, str]]:
    """Find what belongs to formats with marks of their own, at a path, below it, or around it."""
    name = path.absolute().as_posix()
    around = [(path, what) for what, pattern in _INSIDE.items() if pattern.search(name)]
    if around:
        return around
    search = search_folders(
        path, lambda folder: bool(_mark(folder)), deepest=_DEEPEST_SEARCH, most=_MOST_MARKS
    )
    return [(folder, _mark(folder)) for folder in search.folders]


def _mark(folder: Path) -> str:
    """Return what the marks in a folder make it; empty if there are none."""
    for name, what in _MARKS.items():
        if os.path.exists(folder / name):  # noqa: PTH110 (never raises)
            return what
    if any(_ATB_DEVICE.fullmatch(device.name) for device in sub_folders(folder / "tensors", _MOST_NAMES)):
        return "an ATB dump of msit"
    if is_root(folder):
        return "a TorchAir dump"
    others = {"hf-debug-tree": "a call tree of transformers", "sglang": "a dump of SGLang"}
    return next((what for name, what in others.items() if _reader(name).recognise(folder)), "")
