"""Find the tokens of a TorchAir dump by the names of its folders.

FX   ROOT/worldsize1_global_rank0/graph_1/0/mm-aten.mm.default.OUTPUT.0.20250101000000000001.npy
     ROOT/data_dump/1/gm_20250101000000_dump/...npy                      until 7.1.0; tokens count from 1
GE   ROOT/worldsize1_global_rank0/20250101000000/0/graph_1_0/1/0/MatMulV2.MatMul.2.7.1734070081497001
          └ rank, after 7.1.0     └ when         │ └ graph   │ └ token
                                                 └ device    └ number of the loaded model
     ROOT/dynamo_original_graph_1_rank_0_pid_777_ts_20250101000000.txt   the graph that was compiled
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import files_in, folder_entries, search_folders, sub_folders
from firstdrift.groups import gathered, not_in
from firstdrift.model.slice import Coordinates

GRAPH_TEXT = re.compile(
    r"dynamo_original_graph_(?P<number>[0-9]{1,9})(?:_rank_(?P<rank>[0-9]{1,9}))?.*\.txt",
    re.ASCII | re.DOTALL,
)
FX_FILE = re.compile(
    r"(?P<node>.+)\.(?P<role>INPUT|OUTPUT)\.(?P<index>0|[1-9][0-9]{0,8})\.(?P<time>[0-9]{8,24})\.npy",
    re.ASCII | re.DOTALL,
)
GE_FILE = re.compile(
    r"(?P<type>[^.]+)\.(?P<name>.+)\.(?P<task>[0-9]{1,18})\.(?P<stream>[0-9]{1,18})\.(?P<time>[0-9]{10,20})",
    re.ASCII | re.DOTALL,
)
_RANK = re.compile(r"worldsize[0-9]{1,9}_global_rank([0-9]{1,9})", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_GRAPH = re.compile(r"graph_?([0-9]{1,9})", re.ASCII)
_OLD_FX = re.compile(r"gm_.*_dump", re.DOTALL)
_DATA_FOLDER = "data_dump"
_GE_LEVELS = 5
"""Folders from the one of a time down to the one of a token."""

_DEEPEST_ROOT = 3
_DEEPEST_RUN = 8
_LOOKED_AT = 200


class Side(StrEnum):
    """Which of the two forms of a graph ran: torch's, operator by operator, or what was compiled from it."""

    FX = "fx"
    GE = "ge"


_FORMS = ((Side.FX, FX_FILE), (Side.GE, GE_FILE))


class Run(Struct, frozen=True):
    """One folder of operators: one execution of one graph.

    Attributes:
        folder: where its files lie.
        root: the folder that holds the dump.
        rank: as the folder says; None where it does not.
        token: which execution of the graph, from 0; None where the folder does not say.
        graph: "graph_1"; the name of the folder where it has no number.
    """

    folder: Path
    root: Path
    rank: int | None
    token: int | None
    graph: str

    @property
    def coordinates(self) -> Coordinates:
        """Of the slice that it is part of."""
        return Coordinates(rank=self.rank, token=self.token)


def find_side(path: Path) -> tuple[Side, Path] | None:
    """Tell which form of a graph was dumped at or below a path, and where its root is; None if it is unclear.

    Looks at a bounded number of entries.
    """
    roots = search_folders(path, is_root, deepest=_DEEPEST_ROOT, most=2).folders
    if len(roots) > 1:
        return None
    start = roots[0] if roots else path
    found = search_folders(start, lambda folder: _side_of(folder) is not None, deepest=_DEEPEST_RUN, most=1)
    side = _side_of(found.folders[0]) if found.folders else None
    if side is None:
        return None
    return side, roots[0] if roots else _parse(found.folders[0], side).root


def find_runs(path: Path, side: Side) -> tuple[Run, ...]:
    """Find all folders of operators at or below a path."""
    folders = _run_folders(path, side, Bounds.around(path), _DEEPEST_RUN)
    runs = [_parse(folder, side) for folder in folders]
    return tuple(sorted(_complete(runs, side), key=_order))


def graph_texts(run: Run) -> list[Path]:
    """Return the texts of graphs that lie around a run: in the dump's root and on the way down from it."""
    root = Path(os.path.abspath(run.root))  # noqa: PTH100 (a link's own name counts, not its target's)
    around = [folder for folder in Path(os.path.abspath(run.folder)).parents if folder.is_relative_to(root)]  # noqa: PTH100
    bounds = Bounds.around(run.root)
    return [
        entry
        for folder in around
        for entry in files_in(folder, bounds=bounds)
        if GRAPH_TEXT.fullmatch(entry.name)
    ]


def is_root(folder: Path) -> bool:
    """Tell whether a folder holds a TorchAir dump, by what lies directly in it."""
    entries = folder_entries(folder, _LOOKED_AT)
    return any(map(_is_in_root, entries)) or _holds_old_fx(folder / _DATA_FOLDER, entries)


def _is_in_root(entry: tuple[Path, bool]) -> bool:
    path, is_folder = entry
    return (_RANK if is_folder else GRAPH_TEXT).fullmatch(path.name) is not None


def _holds_old_fx(data: Path, entries: list[tuple[Path, bool]]) -> bool:
    if (data, True) not in entries:
        return False
    first = sub_folders(data, _LOOKED_AT)[:1]
    return any(_OLD_FX.fullmatch(run.name) for token in first for run in sub_folders(token, _LOOKED_AT))


def _run_folders(folder: Path, side: Side, bounds: Bounds, depth: int) -> Iterator[Path]:
    if _side_of(folder) is side:
        yield folder
    elif depth:
        for entry in sub_folders(folder, bounds=bounds):
            if not entry.name.startswith("."):
                yield from _run_folders(entry, side, bounds, depth - 1)


def _side_of(folder: Path) -> Side | None:
    """Tell of which form of a graph a folder holds operators; None if it holds none."""
    names = [file.name for file in files_in(folder, _LOOKED_AT)]
    return next((side for name in names for side, form in _FORMS if form.fullmatch(name)), None)


class _Levels(NamedTuple):
    """How far above the folder of a run, itself 0, lie its token, its graph and the root."""

    token: int
    graph: int
    root: int


def _levels(names: Sequence[str], side: Side) -> _Levels:
    if side is Side.GE:
        return _Levels(0, 2, _GE_LEVELS)
    if not _OLD_FX.fullmatch(names[0]):
        return _Levels(0, 1, 2)
    return _Levels(1, 0, 3 if names[2] == _DATA_FOLDER else 2)


def _parse(folder: Path, side: Side) -> Run:
    """Take the path of a run apart."""
    absolute = Path(os.path.abspath(folder))  # noqa: PTH100 (a link's own name counts, not its target's)
    line = (absolute, *absolute.parents)
    names = [part.name for part in line] + [""] * _GE_LEVELS
    levels = _levels(names, side)
    ranks = ((at + 1, match) for at, name in enumerate(names) if (match := _RANK.fullmatch(name)))
    root, rank = next(ranks, (levels.root, None))
    token = names[levels.token]
    return Run(
        folder=folder,
        root=line[min(root, len(line) - 1)],
        rank=int(rank[1]) if rank else None,
        token=int(token) if _NUMBER.fullmatch(token) else None,
        graph=_graph_name(names[levels.graph]),
    )


def _graph_name(name: str) -> str:
    number = _GRAPH.search(name)
    return f"graph_{int(number[1])}" if number else name


def _complete(runs: list[Run], side: Side) -> Iterable[Run]:
    """Say what the names of single folders of older releases do not."""
    if side is Side.GE:
        return _with_devices(runs) if all(run.rank is None for run in runs) else runs
    old = [run for run in runs if _OLD_FX.fullmatch(run.folder.name)]
    return [*not_in(runs, old), *_with_numbers(old)]


def _with_devices(runs: list[Run]) -> list[Run]:
    """Take devices for ranks where there are several."""
    devices = {run.folder: run.folder.parent.parent.parent.name for run in runs}
    if len(set(devices.values())) < 2 or not all(map(_NUMBER.fullmatch, devices.values())):  # noqa: PLR2004
        return runs
    return [replace(run, rank=int(devices[run.folder])) for run in runs]


def _with_numbers(runs: list[Run]) -> Iterator[Run]:
    """Number the graphs of a token by their times, and tokens from 0 where they count from 1."""
    first = 0 if any(run.token == 0 for run in runs) else 1
    for group in gathered(((run.folder.parent, run.rank), run) for run in runs).values():
        for number, run in enumerate(sorted(group, key=lambda run: run.folder.name), start=1):
            token = None if run.token is None else run.token - first
            yield replace(run, token=token, graph=f"graph_{number}")


def _order(run: Run) -> tuple[object, ...]:
    number = _GRAPH.fullmatch(run.graph)
    return (*run.coordinates.sort_key(), int(number[1]) if number else 0, run.graph, str(run.folder))
