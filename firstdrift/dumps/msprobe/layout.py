"""Find the slices of an msprobe dump by the names of its directories.

    step{N}/rank{M}/dump.json     step N, rank M
           /proc{pid}/dump.json   step N, no rank where it is the only process of the step
           /rank/dump.json        step N, no rank (older releases)

Any of the levels may be missing, and the search may begin at any of them. Each slice has one JSON file of
values: dump.json, or debug.json of what was saved at single points.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.reader import Basis, DumpReader
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import beginning_of, entries_of, is_folder, problem_of_file, shown_below
from firstdrift.dumps.storage.json_file import JsonFile, Quick, parse_json, read_json
from firstdrift.errors import DumpNotFoundError, DumpNotRecognisedError, DumpUnreadableError
from firstdrift.files import Entry
from firstdrift.groups import known, seconds
from firstdrift.model.slice import Coordinates, Dump, Problem, SliceListing
from firstdrift.model.tensor import TensorRecord
from firstdrift.wording.message import Message, joined

DUMP_FILE: Final = "dump.json"

_STEP: Final = re.compile(r"step([0-9]{1,9})?")
_RANK: Final = re.compile(r"rank([0-9]{1,9})")
_UNRANKED: Final = re.compile(r"rank|(?:proc|pid)([0-9]{1,18})")
_MODES: Final = frozenset({"pynative", "graph"})
"""Directories that MindSpore's mixed mode puts around the steps."""
_LEVEL: Final = re.compile("|".join((_STEP.pattern, _RANK.pattern, _UNRANKED.pattern, *sorted(_MODES))))

_HEADER_BYTES: Final = 65_536
_DATA: Final = re.compile(r',?\s*"data"\s*:')


class Mark(Struct, frozen=True):
    """What tells the directory of a slice from others.

    Attributes:
        name: what lies in it.
        is_slice: tells it by the entries of a directory.
    """

    name: str
    is_slice: Callable[[list[Entry]], bool]


def mark_of(file: str) -> Mark:
    """Tell slices by a file of a name."""
    return Mark(file, lambda entries: any(entry.name == file and not is_folder(entry) for entry in entries))


DUMP_MARK: Final = mark_of(DUMP_FILE)


class Layout(Struct, frozen=True):
    """The slices of a dump.

    Attributes:
        slices: in the order of execution.
        given: which ranks were given to processes that have none.
        problems: directories that hold no slice, or one that cannot be told from another.
        begun: directories of slices that hold none yet; each is a problem, too.
    """

    slices: tuple[SliceListing, ...]
    given: tuple[Message, ...]
    problems: tuple[Problem, ...]
    begun: tuple[SliceListing, ...]

    @property
    def attributes(self) -> dict[str, str | Message]:
        """What is said of the dump as a whole."""
        return {"ranks": Message.of("dumps.msprobe.given_ranks", given=self.given)} if self.given else {}

    def problems_below(self, top: Path) -> list[Problem]:
        """Return the problems of folders, which are named as they lie below the dump."""
        return [Problem(shown_below(Path(problem.file), top), problem.reason) for problem in self.problems]


class _Place(Struct, frozen=True):
    directory: Path
    step: int | None = None
    rank: int | None = None
    unranked: str = ""
    levels: frozenset[str] = frozenset()

    def enter(self, directory: Path) -> "_Place | None":
        """Return the place one directory further down; None where its name means nothing."""
        name = directory.name
        level, changes = _level(name)
        if not level or level in self.levels:
            return None
        return replace(self, **changes, directory=directory, levels=self.levels | {level})


def _level(name: str) -> tuple[str, dict[str, Any]]:
    """Return which level of a dump the name of a directory is of, and what it says; "" for none."""
    if match := _STEP.fullmatch(name):
        return "step", {"step": _number(match[1])}
    if match := _RANK.fullmatch(name):
        return "rank", {"rank": _number(match[1]), "unranked": ""}
    if _UNRANKED.fullmatch(name):
        return "rank", {"rank": None, "unranked": name}
    return ("mode" if name in _MODES else ""), {}


def find_slices(directory: Path, mark: Mark) -> Layout:
    """Find the slices, told by a mark, at and below a directory: a dump, or one of its directories."""
    problems: list[Problem] = []
    search = _Search(Bounds.around(directory), mark, problems)
    places = list(search.descend(_surroundings(directory), is_top=True))
    names = _ranks_of_unranked(places)
    slices: dict[Coordinates, SliceListing] = {}
    for place in places:
        coordinates = Coordinates(step=place.step, rank=names.get(place.unranked, place.rank))
        if coordinates in slices:
            other = str(slices[coordinates].directory)
            reason = Message.of("dumps.msprobe.slice_twice", slice=coordinates.name(), other=other)
            problems.append(Problem(str(place.directory), reason))
        else:
            slices[coordinates] = SliceListing(coordinates, place.directory)
    ordered = sorted(slices.values(), key=lambda listing: listing.coordinates.sort_key())
    given = tuple(
        Message.of("dumps.msprobe.given_rank", process=name, rank=rank) for name, rank in names.items()
    )
    begun = tuple(
        SliceListing(Coordinates(step=place.step, rank=place.rank), place.directory) for place in search.begun
    )
    return Layout(tuple(ordered), given, tuple(problems), begun)


def read_header(file: Path) -> dict[str, str] | None:
    """Read what dump.json says of itself, from its beginning alone; None where no "data" follows."""
    beginning = beginning_of(file, _HEADER_BYTES).decode("utf-8", errors="replace")
    data = _DATA.search(beginning)
    return None if data is None else _attributes(beginning[: data.start()] + "}", beginning)


def _attributes(header: str, beginning: str) -> dict[str, str]:
    try:
        value = parse_json(header).value
    except (ValueError, RecursionError):
        return {}
    texts = {key: text for key, text in value.items() if isinstance(text, str) and text}
    attributes = {"framework": _guess_framework(beginning)} | texts
    if value.get("is_merged") is True:
        attributes["merged"] = "msprobe"
    return {key: attributes[key] for key in ("task", "level", "framework", "merged") if attributes.get(key)}


def said_of(header: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a header says, for a message: "task statistics", "level mix"."""
    return tuple(f"{key} {value}" for key, value in header.items())


def _guess_framework(beginning: str) -> str:
    marks = {"mindspore": '"type": "mindspore', "pytorch": '"type": "torch'}
    return next((framework for framework, mark in marks.items() if mark in beginning), "")


def _surroundings(directory: Path) -> _Place:
    """Return what the names of a directory and of the one around it say."""
    absolute = Path(os.path.abspath(directory))  # noqa: PTH100 - a link's own name counts, not its target's
    place = _Place(directory).enter(absolute) or _Place(directory)
    if "rank" in place.levels:
        place = place.enter(absolute.parent) or place
    return replace(place, directory=directory, levels=frozenset())


class _Search:
    """Looks for the directories of slices; what holds none is a problem.

    Attributes:
        begun: those of a step or a rank that hold nothing yet.
    """

    def __init__(self, bounds: Bounds, mark: Mark, problems: list[Problem]) -> None:
        self.begun: list[_Place] = []
        self._bounds, self._mark, self._problems = bounds, mark, problems

    def descend(self, place: _Place, *, is_top: bool = False) -> Iterator[_Place]:
        """Yield the places of slices at or below one."""
        try:
            with entries_of(place.directory) as found:
                entries = list(found)
        except DumpUnreadableError as error:
            self._problems.append(Problem(str(place.directory), error.message))
            return
        if self._mark.is_slice(entries):
            yield place
            return
        below = list(self._enter(place, entries))
        for inner in below:
            yield from self.descend(inner)
        if not below and not is_top:
            reason = Message.of("dumps.msprobe.no_mark", name=self._mark.name)
            self._problems.append(Problem(str(place.directory), reason))
            self.begun += [place] if place.step is not None else []

    def _enter(self, place: _Place, entries: Iterable[Entry]) -> Iterator[_Place]:
        """Yield the places below one; a link that leads out of the dump is a problem."""
        # A folder of something else may hold very many entries.
        levels = [entry for entry in entries if _LEVEL.fullmatch(entry.name)]
        for entry in sorted(levels, key=lambda entry: entry.name):
            inner = place.enter(place.directory / entry.name)
            if inner is None:
                continue
            if refusal := self._bounds.refusal(entry):
                self._problems.append(Problem(str(inner.directory), refusal))
            elif is_folder(entry):
                yield inner


def _ranks_of_unranked(places: list[_Place]) -> dict[str, int]:
    """Give ranks to processes without one, where a step has several; {} where none has."""
    processes = {(place.step, place.rank, place.unranked) for place in places}
    counts = Counter(step for step, _, _ in processes)
    if not any(unranked and counts[step] > 1 for step, _, unranked in processes):
        return {}
    first = 1 + max(known(rank for _, rank, _ in processes), default=-1)
    names = sorted({unranked for *_, unranked in processes} - {""}, key=_process_number)
    return dict(zip(names, count(first), strict=False))


def _process_number(name: str) -> int:
    match = _UNRANKED.fullmatch(name)
    return int(match[1] or -1) if match else -1


def _number(digits: str | None) -> int | None:
    return None if digits is None else int(digits)


class JsonDumpReader(DumpReader):
    """A `DumpReader` of dumps with one JSON file for each slice.

    Attributes:
        mark: the file that makes a folder a slice.
    """

    mark: ClassVar[Mark]

    def layout(self, path: Path) -> Layout:
        """Find the slices at and below a path: a dump, one of its directories, or the file of a slice."""
        return find_slices(_top(path, self.mark.name), self.mark)

    def open_dump(self, path: Path) -> Dump:
        """List the slices of a dump, from the names of its directories."""
        layout = self.layout(path)
        if not layout.slices and not os.path.lexists(path):
            raise DumpNotFoundError(Message.of("dumps.nothing_here"), path=path)
        if not layout.slices:
            problems = (problem_of_file(problem.file, problem.reason) for problem in layout.problems)
            none = Message.of("dumps.msprobe.no_file", name=self.mark.name)
            raise DumpNotRecognisedError(joined(none, *problems), path=path)
        file = layout.slices[0].directory / self.mark.name
        header = (not Bounds.around(path).refusal(file) and read_header(file)) or {}
        problems_below = layout.problems_below(_top(path, self.mark.name))
        dump = self.dump(path, layout.slices, problems_below, header | layout.attributes)
        return replace(dump, begun=layout.begun)

    def bases(self, dump: Dump) -> Mapping[SliceListing, Basis]:
        """Say what decides what is found in each slice: what lies in its directory."""
        return {listing: Basis((listing.directory,)) for listing in dump.slices}

    def shown(self, file: Path, path: Path) -> str:
        """Return where a file lies in the dump at a path."""
        return shown_below(file, _top(path, self.mark.name))


def _top(path: Path, name: str) -> Path:
    return path.parent if path.name == name else path


class SliceFiles:
    """Reads the JSON files of one slice, gathering what could not be used.

    Attributes:
        folder: where they lie.
        bounds: what no link among them may lead out of.
        problems: what could not be used.
    """

    def __init__(self, reader: JsonDumpReader, dump: Dump, listing: SliceListing) -> None:
        """Take the slice of a dump."""
        self.folder = listing.directory
        self.bounds = Bounds.around(dump.path)
        self.problems: list[Problem] = []
        self._reader, self._path = reader, dump.path

    def read_data(self, quick: Quick = lambda _: None) -> dict[str, Any]:
        """Read the file of the slice, whose "data" is an object.

        Raises:
            DumpUnreadableError: it is damaged, or a link that leads out of the dump.
        """
        file = self.folder / self._reader.mark.name
        read = read_json(self.bounds.require(file), quick)
        if not isinstance(read.value, dict) or not isinstance(read.value.get("data"), dict):
            raise DumpUnreadableError(Message.of("dumps.msprobe.no_data"), path=file)
        self.report_repeated(file.name, read)
        return read.value

    def read_records(
        self, names: Iterable[str], read: Callable[[str, list[Message]], tuple[TensorRecord, ...]]
    ) -> dict[str, tuple[TensorRecord, ...]]:
        """Read the records of some names, each with what is wrong with it."""
        found = {name: read_record(name, partial(read, name)) for name in names}
        self.report(self._reader.mark.name, chain.from_iterable(seconds(found.values())))
        return {name: tensors for name, (tensors, _) in found.items()}

    def report(self, file: str, reasons: Iterable[Message]) -> None:
        """Keep what could not be used of a file."""
        shown = self._reader.shown(self.folder / file, self._path)
        self.problems += [Problem(shown, reason) for reason in reasons]

    def report_repeated(self, file: str, read: JsonFile) -> None:
        """Keep which keys a file has more than once."""
        self.report(
            file, (Message.of("dumps.json.key_repeated", key=repr(key)) for key in read.repeated_keys)
        )


def read_record(
    name: str, read: Callable[[list[Message]], tuple[TensorRecord, ...]]
) -> tuple[tuple[TensorRecord, ...], list[Message]]:
    """Read the record of a name; return its tensors, and what is wrong with it."""
    problems: list[Message] = []
    try:
        tensors = read(problems)
    except RecursionError:
        tensors = ()
        problems.append(Message.of("dumps.record.nested_too_deeply"))
    return tensors, [Message.of("dumps.record.problem", record=name, problem=each) for each in problems]
