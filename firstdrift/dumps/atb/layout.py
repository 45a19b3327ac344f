"""Find the folders of an ATB dump, whichever of them was named.

msit                                       msprobe
msit_dump_20250101_000000/                 atb_dump_data/
├── model/4242/*.json                      ├── info/model/0_4242/*.json
└── tensors/                               └── data/
    └── 0_4242/   one device and process       └── 0_4242/
        └── 3/    one run of the model             └── 3/
            └── 20_Decoder_layer/after/outtensor0.bin
"""

import os
import re
from pathlib import Path

from msgspec import Struct

from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import MOST_ENTRIES, is_file, process_folders, ranks_of, sub_folders

STATISTICS_FILE = "statistic.csv"
OPERATION_NAME = re.compile(r"(?P<order>0|[1-9][0-9]{0,8})_(?P<type>[^/\0]+)", re.ASCII)
"""Name of the folder of an operation: its running number and its type."""

_PROCESS_NAME = re.compile(r"(?P<device>[0-9]{1,9})_(?P<pid>[0-9]{1,18})", re.ASCII)
_RUN_NAME = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)


class AtbLayout(Struct, frozen=True):
    """Where a tool puts what it dumps.

    Attributes:
        holder: path of the folder of processes in the dump: ("tensors",).
        models: path of the topologies of a process in the dump, with {process} and {pid}.
        layers: the same for the topologies of single operations.
    """

    holder: tuple[str, ...]
    models: str
    layers: str

    def is_holder(self, folder: Path) -> bool:
        """Tell whether a folder is named like one that holds processes."""
        return folder.parts[-len(self.holder) :] == self.holder


class AtbProcess(Struct, frozen=True):
    """What one process wrote.

    Attributes:
        folder: holds its runs.
        rank: its rank among others; None if it is alone.
        runs: numbered folders, one for each run of the model, in ascending order.
        bounds: the folder of the dump, which no link may lead out of.
        models: folder of the topologies of its models.
        layers: folder of the topologies of single operations.
    """

    folder: Path
    rank: int | None
    runs: tuple[Path, ...]
    bounds: Bounds
    models: Path
    layers: Path


def find_processes(path: Path, layout: AtbLayout) -> tuple[AtbProcess, ...]:
    """Return the processes of the one dump at, above or below a path; none if there is no such dump."""
    path = Path(os.path.realpath(path))
    if _is_process(path.parent, layout) and _is_run(path):
        return (process_at(path.parent, layout),)
    folders = process_folders(
        path, lambda folder: _is_process(folder, layout), layout.is_holder, _own_folders
    )
    ranks = ranks_of([int(folder.name.partition("_")[0]) for folder in folders])
    return tuple(process_at(folder, layout, rank) for folder, rank in zip(folders, ranks, strict=True))


def process_at(folder: Path, layout: AtbLayout, rank: int | None = None) -> AtbProcess:
    """Describe the process that wrote a folder."""
    runs = [entry for entry in _own_folders(folder) if _RUN_NAME.fullmatch(entry.name)]
    root = folder.parent.parent
    names = {"process": folder.name, "pid": folder.name.rpartition("_")[2]}
    return AtbProcess(
        folder=folder,
        rank=rank,
        runs=tuple(sorted(runs, key=lambda run: int(run.name))),
        bounds=Bounds(root),
        models=root / layout.models.format(**names),
        layers=root / layout.layers.format(**names),
    )


def operation_folders(folder: Path) -> list[Path]:
    """Return the folders of operations in a folder by name."""
    return [entry for entry in _own_folders(folder) if OPERATION_NAME.fullmatch(entry.name)]


def _own_folders(folder: Path, most_entries: int | None = None) -> list[Path]:
    """Return the folders in a folder by name; links to folders are none of them."""
    return [entry for entry in sub_folders(folder, most_entries) if not entry.is_symlink()]


def _is_process(folder: Path, layout: AtbLayout) -> bool:
    return (
        layout.is_holder(folder.parent)
        and _PROCESS_NAME.fullmatch(folder.name) is not None
        and any(map(_is_run, _own_folders(folder, MOST_ENTRIES)))
    )


def _is_run(folder: Path) -> bool:
    if _RUN_NAME.fullmatch(folder.name) is None:
        return False
    entries = _own_folders(folder, MOST_ENTRIES)
    return is_file(folder / STATISTICS_FILE) or any(OPERATION_NAME.fullmatch(entry.name) for entry in entries)
