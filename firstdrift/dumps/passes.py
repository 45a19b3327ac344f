"""Read the forward passes that SGLang and vLLM save: a file each, of what every module gave.

    Pass00001.pt   {"model": …                                   of pass 0: what the model gave,
                    "logits_processor": …                        and what ran after it
                    "model.embed_tokens": tensor,                of pass 1, in the order in which
                    "model.layers.0.self_attn.o_proj": [a, b],   the modules ended
                    "model.forward_batch_info.input_ids": …}     what the model of pass 1 was given

A file is written when the model has ended, before what it gave is kept: that lies in the next file, with
what ran after it (`lm_head`). It is read with its own pass; that of the last pass was never written.

Each process has a folder of its own:

    TP0_PP0_Rank0_pid4711/Pass00000.pt      what the first process saved of its first pass
    TP1_PP0_Rank1_pid4712/Pass00000.pt      what the second did
"""

import re
from collections.abc import Mapping
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Final

from msgspec import Struct

from firstdrift.dumps.containers.contents import TensorHeader
from firstdrift.dumps.containers.tensor_pickle import named_layouts
from firstdrift.dumps.reader import DumpReader
from firstdrift.dumps.recorded_calls import Recorded, nodes_of
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import (
    MOST_ENTRIES,
    Listed,
    first_named,
    first_names,
    list_named,
    number_in_name,
    passed_over,
    printable,
    process_folders,
    ranks_of,
    sub_folders,
)
from firstdrift.dumps.storage.tensor_data import dotted, headers_of, record_of, saved_value
from firstdrift.errors import DumpUnreadableError
from firstdrift.groups import gathered, not_in
from firstdrift.model.slice import Coordinates, Dump, Problem, Slice, SliceListing
from firstdrift.model.tensor import Role
from firstdrift.wording.message import Message

_FILE: Final = re.compile(r"Pass(?P<number>[0-9]{1,18})\.pt", re.ASCII)
_RANK: Final = re.compile(r"(?:.*_)?Rank(?P<rank>[0-9]{1,9})(?:_.*)?", re.ASCII)


class Process(Struct, frozen=True):
    """What one process saved.

    Attributes:
        folder: where it lies.
        rank: which process it is; None if it is the only one.
    """

    folder: Path
    rank: int | None


def first_pass(folder: Path) -> str | None:
    """Return the name of a file of a pass in a folder; None if there is none among its first entries."""
    return first_named(folder, _FILE.fullmatch, MOST_ENTRIES)


def processes_at(path: Path) -> tuple[list[Process], list[Path]]:
    """Return the processes of a dump by rank, and the folders of those whose rank another has."""
    folders = process_folders(path, first_pass, lambda _: True, sub_folders)
    numbers = [number_in_name(folder.name, _RANK) for folder in folders]
    if None in numbers:
        return list(map(Process, folders, ranks_of(numbers))), []
    by_rank = gathered(zip(numbers, folders, strict=True))
    firsts = [same_rank[0] for same_rank in by_rank.values()]
    left = not_in(folders, firsts)
    return list(map(Process, firsts, ranks_of(list(by_rank)))), left


def passes_in(folder: Path, bounds: Bounds) -> tuple[dict[int, Listed], list[str]]:
    """Return the files of the passes in a folder by number, and the names of what else lies there.

    Raises:
        DumpUnreadableError: the folder cannot be read.
    """
    named, unknown = list_named(folder, bounds, partial(number_in_name, form=_FILE))
    by_number: dict[int, Listed] = {}
    for file, number in named:
        if by_number.setdefault(number, file) is not file:
            unknown.append(file.path.name)
    return by_number, unknown


_BATCH: Final = ".forward_batch_info."
_HANDED_ON: Final = ".pp_proxy_tensors."
_USUAL_MODEL: Final = "model"


class PassesReader(DumpReader):
    """The `DumpReader` of files of forward passes."""

    format = "passes"
    title = Message.of("dumps.passes.title")

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that files of forward passes lie at a path; empty if none do."""
        processes, _ = processes_at(path)
        if not processes:
            return ()
        first = processes[0].folder
        file = printable(first_pass(first) or "")
        return (Message.of("dumps.passes.file", file=file, folder=printable(first.name)),)

    def is_marked(self, folder: Path) -> bool:
        """Tell whether files of passes lie in a folder."""
        return first_pass(folder) is not None

    def open_dump(self, path: Path) -> Dump:
        """List the passes of each process, which are the steps of its rank."""
        processes, same_rank = processes_at(path)
        if not processes:
            raise self.none_at(path)
        bounds = Bounds.around(path)
        listings, problems = [], []
        for process in processes:
            files, unknown = passes_in(process.folder, bounds)
            problems += passed_over(printable(process.folder.name), unknown)
            listings += [SliceListing(Coordinates(step, process.rank), process.folder) for step in files]
        problems += [
            Problem(printable(folder.name), Message.of("dumps.passes.same_rank")) for folder in same_rank
        ]
        return self.dump(path, listings, problems, {"framework": "pytorch"})

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the headers of the file of a pass, and of what ran after its model in the file after it."""
        files, _ = passes_in(listing.directory, Bounds.around(dump.path))
        step = listing.coordinates.step or 0
        if step not in files:
            raise DumpUnreadableError(Message.of("dumps.plain.files_gone"), path=listing.directory)
        entries = _read(files[step])
        earlier, own = _split(entries) if step else ([], entries)
        later, problems = _read_later(files, step, is_expected=bool(earlier))
        if earlier and step - 1 not in files:
            names = first_names([entry.name for entry in earlier])
            problems.append(_problem(files[step], Message.of("dumps.passes.no_such_pass", modules=names)))
        return Slice(listing, nodes_of(map(_recorded, (*own, *later))), problems=tuple(problems))


class _Entry(Struct, frozen=True):
    """What a file holds under one name.

    Attributes:
        name: the name.
        file: the file.
        headers: its tensors, each with its place in what was saved ("": the only one).
        model: the name of the model.
    """

    name: str
    file: Path
    headers: tuple[tuple[str, TensorHeader], ...]
    model: str = _USUAL_MODEL


def _problem(file: Listed, reason: Message) -> Problem:
    return Problem(printable(file.path.name), reason)


def _read(file: Listed) -> list[_Entry]:
    """Return what a file holds, in its order.

    Raises:
        DumpUnreadableError: it is damaged, or holds no tensors by name.
    """
    headers, reason = headers_of(file.path, "pt", file.refusal)
    value = None if reason else saved_value(file.path)
    if not isinstance(value, dict):
        raise DumpUnreadableError(reason or Message.of("dumps.passes.no_names"), path=file.path)
    in_order = iter(headers)
    model = next((str(name).partition(_BATCH)[0] for name in value if _BATCH in str(name)), _USUAL_MODEL)
    return [
        _Entry(str(name), file.path, tuple(zip(_places(held), in_order, strict=False)), printable(model))
        for name, held in value.items()
    ]


def _places(value: object) -> tuple[str, ...]:
    """Return the place of each tensor in a value, in the order in which a file lists them."""
    return tuple(place for place, _ in named_layouts(value))


def _split(entries: list[_Entry]) -> tuple[list[_Entry], list[_Entry]]:
    """Tell what ran after the model of the pass before from what is of the pass itself."""
    if not entries or entries[0].name != entries[0].model:
        return [], entries
    inside = f"{entries[0].model}."
    earlier = list(takewhile(lambda entry: not entry.name.startswith(inside), entries))
    return earlier, entries[len(earlier) :]


def _read_later(
    files: Mapping[int, Listed], step: int, *, is_expected: bool
) -> tuple[list[_Entry], list[Problem]]:
    """Return what ran after the model of a pass, which lies in the file of the pass after it."""
    following = files.get(step + 1)
    if following is None:
        missing = _problem(files[step], Message.of("dumps.passes.never_written"))
        return [], [missing] if is_expected else []
    try:
        return _split(_read(following))[0], []
    except DumpUnreadableError as exc:
        return [], [_problem(following, exc.message)]


def _recorded(entry: _Entry) -> Recorded:
    path, role, key = _place(entry)
    records = tuple(
        record_of(header, entry.file, "pt", role, dotted(key, printable(place)) or "0")
        for place, header in entry.headers
    )
    return Recorded(path, role, key, records)


def _place(entry: _Entry) -> tuple[str, Role, str]:
    """Return path, role and key of what lies under a name; no key where its places are the keys."""
    name = printable(entry.name)
    for mark, role in ((_BATCH, Role.INPUT), (_HANDED_ON, Role.OUTPUT)):
        path, found, key = name.partition(mark)
        if found:
            return path, role, key
    return name, Role.OUTPUT, ""
