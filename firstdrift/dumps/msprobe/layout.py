"""Find the slices of an msprobe dump by the names of its directories.

    step{N}/rank{M}/dump.json     step N, rank M
           /proc{pid}/dump.json   step N, no rank where it is the only process of the step
           /rank/dump.json        step N, no rank (older releases)

Any of the levels may be missing, and the search may begin at any of them.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import is_folder
from firstdrift.dumps.storage.json_file import parse_json
from firstdrift.dumps.storage.listed_files import folder_unreadable
from firstdrift.files import Entry, list_folder, open_regular
from firstdrift.model.slice import Coordinates, Problem, SliceListing
from firstdrift.wording.message import Message

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


DUMP_MARK: Final = Mark(
    DUMP_FILE, lambda entries: any(entry.name == DUMP_FILE and not is_folder(entry) for entry in entries)
)


class Layout(Struct, frozen=True):
    """The slices of a dump.

    Attributes:
        slices: in the order of execution.
        rank_origin: how ranks were given to processes that have none, in words; "" if none were.
        problems: directories that hold no slice, or one that cannot be told from another.
    """

    slices: tuple[SliceListing, ...]
    rank_origin: str
    problems: tuple[Problem, ...]


class _Place(Struct, frozen=True):
    directory: Path
    step: int | None = None
    rank: int | None = None
    unranked: str = ""
    levels: frozenset[str] = frozenset()

    def enter(self, directory: Path) -> "_Place | None":
        """Return the place one directory further down; None where its name means nothing."""
        name = directory.name
        if match := _STEP.fullmatch(name):
            level, known = "step", replace(self, step=_number(match[1]))
        elif match := _RANK.fullmatch(name):
            level, known = "rank", replace(self, rank=_number(match[1]), unranked="")
        elif _UNRANKED.fullmatch(name):
            level, known = "rank", replace(self, rank=None, unranked=name)
        elif name in _MODES:
            level, known = "mode", self
        else:
            return None
        if level in self.levels:
            return None
        return replace(known, directory=directory, levels=self.levels | {level})


def find_slices(path: Path, mark: Mark = DUMP_MARK) -> Layout:
    """Find the slices at and below a path: a dump, one of its directories, or its dump.json.

    A slice is told by a mark: by dump.json, unless a layout has another.
    """
    directory = path.parent if path.name == DUMP_FILE else path
    problems: list[Problem] = []
    places = list(_descend(_surroundings(directory), Bounds.around(path), mark, problems, is_top=True))
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
    given = ", ".join(f"{name} is read as rank {rank}" for name, rank in names.items())
    return Layout(tuple(ordered), given, tuple(problems))


def read_header(file: Path) -> dict[str, str] | None:
    """Read what dump.json says of itself, from its beginning alone; None where no "data" follows."""
    try:
        with open_regular(file) as stream:
            beginning = stream.read(_HEADER_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return None
    found = _DATA.search(beginning)
    if found is None:
        return None
    try:
        header = parse_json(beginning[: found.start()] + "}").value
    except (ValueError, RecursionError):
        return {}
    said = {key: value for key, value in header.items() if isinstance(value, str) and value}
    said.setdefault("framework", _guess_framework(beginning))
    if header.get("is_merged") is True:
        said["merged"] = "of several ranks, by msprobe"
    return {key: said[key] for key in ("task", "level", "framework", "merged") if said.get(key)}


def said_of(header: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a header says, for a message: "task statistics", "level mix"."""
    return tuple(f"{key} {value}" for key, value in header.items())


def _guess_framework(beginning: str) -> str:
    for framework, mark in (("mindspore", '"type": "mindspore'), ("pytorch", '"type": "torch')):
        if mark in beginning:
            return framework
    return ""


def _surroundings(directory: Path) -> _Place:
    """Return what the names of a directory and of the one around it say."""
    absolute = Path(os.path.abspath(directory))  # noqa: PTH100 - a link's own name counts, not its target's
    place = _Place(directory).enter(absolute) or _Place(directory)
    if "rank" in place.levels:
        place = place.enter(absolute.parent) or place
    return replace(place, directory=directory, levels=frozenset())


def _descend(
    place: _Place, bounds: Bounds, mark: Mark, problems: list[Problem], *, is_top: bool = False
) -> Iterator[_Place]:
    try:
        entries = list_folder(place.directory)
    except OSError as error:
        problems.append(Problem(str(place.directory), folder_unreadable(error)))
        return
    if mark.is_slice(entries):
        yield place
        return
    below: list[_Place] = []
    # A folder of something else may hold very many entries.
    known = [entry for entry in entries if _LEVEL.fullmatch(entry.name)]
    for entry in sorted(known, key=lambda entry: entry.name):
        found = place.enter(place.directory / entry.name)
        if found is None:
            continue
        if reason := bounds.refusal(entry):
            problems.append(Problem(str(found.directory), reason))
        elif is_folder(entry):
            below.append(found)
    for found in below:
        yield from _descend(found, bounds, mark, problems)
    if not below and not is_top:
        problems.append(Problem(str(place.directory), Message.of("dumps.msprobe.no_mark", name=mark.name)))


def _ranks_of_unranked(places: list[_Place]) -> dict[str, int]:
    """Give ranks to processes without one, where a step has several; {} where none has."""
    ranks_of_step: dict[int | None, set[tuple[int | None, str]]] = defaultdict(set)
    for place in places:
        ranks_of_step[place.step].add((place.rank, place.unranked))
    if not any(len(ranks) > 1 and any(unranked for _, unranked in ranks) for ranks in ranks_of_step.values()):
        return {}
    first = max((place.rank + 1 for place in places if place.rank is not None), default=0)
    names = sorted({place.unranked for place in places if place.unranked}, key=_process_number)
    return {name: first + index for index, name in enumerate(names)}


def _process_number(name: str) -> int:
    match = _UNRANKED.fullmatch(name)
    return int(match[1] or -1) if match else -1


def _number(digits: str | None) -> int | None:
    return None if digits is None else int(digits)
