"""Read the tensors that the debug hook of TensorRT-LLM (PyTorch backend) saves: a file each.

    data_dump/rank0/1.LlamaModel-25.LlamaDecoderLayer-2.LlamaAttention-2.Linear-input.input.pt

    LlamaModel.LlamaDecoderLayer.23.LlamaAttention.Linear.1   input.input

A module is told by its class and by which one it was that the module around it called; here it is numbered
among those of its class, if there are several. Where the first module of all is called again, a pass begins.
After a call its arguments are saved once more, as outputs: those are called "output.argument.…".
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from firstdrift.dumps.reader import DumpReader
from firstdrift.dumps.recorded_calls import Recorded, nodes_of
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import (
    Listed,
    first_named,
    list_named,
    number_in_name,
    passed_over,
    printable,
    process_folders,
    ranks_of,
    sub_folders,
)
from firstdrift.dumps.storage.tensor_data import records_of_file
from firstdrift.errors import DumpUnreadableError
from firstdrift.groups import gathered, known, seconds
from firstdrift.model.slice import Coordinates, Dump, Slice, SliceListing
from firstdrift.model.tensor import Role
from firstdrift.wording.message import Message

Place = tuple[tuple[int, str], ...]
"""A module: of each module around it and itself, which one was called and what it is called."""

_FILE: Final = re.compile(
    r"(?P<place>[0-9]{1,9}\.[^/\0]{1,200}?)-(?P<role>input|output)\.(?P<key>[^/\0]{1,200})\.pt", re.DOTALL
)
_BETWEEN: Final = re.compile(r"-(?=[0-9]{1,9}\.)", re.ASCII)
_PART: Final = re.compile(r"(?P<number>[0-9]{1,9})\.(?P<name>.+)", re.DOTALL)
_RANK: Final = re.compile(r"rank(?P<rank>[0-9]{1,9})", re.ASCII)
_LOOKED_AT: Final = 50
_LAST: Final = (2**31, "")
"""Comes after all modules in a module: it ends after them."""


class _Saved(Struct, frozen=True):
    """What the name of a file says."""

    place: Place
    role: Role
    key: str


class TensorrtLlmReader(DumpReader):
    """The `DumpReader` of TensorRT-LLM's debug hook."""

    format = "tensorrt-llm"
    title = Message.of("dumps.tensorrt_llm.title")

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that files of the hook lie at a path; empty if none do."""
        folders = _folders(path)
        name = _first_name(folders[0]) if folders else None
        return (Message.of("dumps.tensorrt_llm.file", file=printable(name)),) if name else ()

    def is_marked(self, folder: Path) -> bool:
        """Tell whether files of the hook lie in a folder."""
        return _first_name(folder) is not None

    def open_dump(self, path: Path) -> Dump:
        """List the passes of each rank, from the names of its files."""
        folders = _folders(path)
        if not folders:
            raise self.none_at(path)
        ranks = ranks_of([number_in_name(folder.name, _RANK) for folder in folders])
        listings, problems = [], []
        for folder, rank in zip(folders, ranks, strict=True):
            named, unknown = list_named(folder, Bounds.around(path), _parse)
            problems += passed_over(printable(folder.name), unknown)
            passes = _passes(seconds(named))
            steps = range(len(set(passes.values())))
            single = len(steps) == 1
            listings += [SliceListing(Coordinates(None if single else step, rank), folder) for step in steps]
        return self.dump(path, listings, problems, {"framework": "pytorch"})

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the headers of the files of a pass."""
        named, _ = list_named(listing.directory, Bounds.around(dump.path), _parse)
        passes = _passes(seconds(named))
        step = listing.coordinates.step or 0
        mine = [(file, saved) for file, saved in named if passes[saved.place[0]] == step]
        if not mine:
            raise DumpUnreadableError(Message.of("dumps.plain.files_gone"), path=listing.directory)
        return Slice(listing, nodes_of(_recorded(mine)))


def _folders(path: Path) -> list[Path]:
    return process_folders(path, _first_name, lambda _: True, sub_folders)


def _first_name(folder: Path) -> str | None:
    return first_named(folder, _parse, _LOOKED_AT)


def _parse(name: str) -> _Saved | None:
    match = _FILE.fullmatch(name)
    if match is None:
        return None
    parts = _BETWEEN.split(match["place"])
    place = tuple(
        (int(part["number"]), printable(part["name"])) for part in known(map(_PART.fullmatch, parts))
    )
    if len(place) < len(parts):
        return None
    return _Saved(place, Role(match["role"]), printable(match["key"]))


def _passes(saved: Iterable[_Saved]) -> dict[tuple[int, str], int]:
    """Number the passes: one begins where a module at the top is called like the first of all."""
    tops = sorted({one.place[0] for one in saved})
    begins = [top[1] == tops[0][1] for top in tops]
    return {top: sum(begins[: at + 1]) - 1 for at, top in enumerate(tops)}


def _recorded(mine: Sequence[tuple[Listed, _Saved]]) -> Iterator[Recorded]:
    """Yield what was saved in the order in which modules ended, what they took first."""
    labels = _labels({saved.place for _, saved in mine})
    given = {(saved.place, saved.key) for _, saved in mine if saved.role is Role.INPUT}
    for file, saved in sorted(mine, key=_when):
        is_argument = saved.role is Role.OUTPUT and (saved.place, saved.key) in given
        key = f"argument.{saved.key}" if is_argument else saved.key
        path = ".".join(labels[saved.place[: at + 1]] for at in range(len(saved.place)))
        records = records_of_file(file.path, "pt", saved.role, key, file.refusal)
        yield Recorded(path, saved.role, key, tuple(records), call=0, type_name=saved.place[-1][1])


def _when(item: tuple[Listed, _Saved]) -> tuple[Place, bool, str]:
    _, saved = item
    return (*saved.place, _LAST), saved.role is Role.OUTPUT, saved.key


def _labels(places: Iterable[Place]) -> Mapping[Place, str]:
    """Name each module by its class, with a number where what called it called several of that class."""
    known = {place[: at + 1] for place in places for at in range(len(place))}
    alike = gathered(((place[:-1], place[-1][1].replace(".", "_")), place) for place in sorted(known))
    return {
        place: name if len(group) == 1 else f"{name}.{at}"
        for (_, name), group in alike.items()
        for at, place in enumerate(group)
    }
