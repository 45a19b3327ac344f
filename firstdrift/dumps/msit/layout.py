"""Find the folders of a msit torch dump, whichever of them was named.

runs/llama/                          a folder with exactly one dump in or below it
└── msit_dump_20261120_155326/
    └── torch_tensors/
        └── cuda0_14498/             one device and process: a rank
            ├── model_tree.json
            ├── weights/root.model.norm.weight.pth
            └── 3/                   a token
                └── root.model.layers.0/output.pth
"""

import re
from pathlib import Path

from msgspec import Struct

from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import MOST_ENTRIES, is_file, process_folders, ranks_of, sub_folders

TREE_FILE = "model_tree.json"
WEIGHTS_FOLDER = "weights"
TENSORS_FOLDER = "torch_tensors"
_TOKEN_NAME = re.compile(r"0|[1-9][0-9]{0,17}")
_DEVICE_NAME = re.compile(r"[a-z]+(?P<index>[0-9]*)_[0-9]+")


class Device(Struct, frozen=True):
    """What one process wrote.

    Attributes:
        folder: holds its tokens.
        rank: its rank among others; None if it is alone.
        tokens: their folders in ascending order.
        bounds: what no link in its folder may lead out of.
    """

    folder: Path
    rank: int | None
    tokens: tuple[Path, ...]
    bounds: Bounds


def find_devices(path: Path) -> tuple[Device, ...]:
    """Return the devices of the one dump at, above or below a path; none if there is no such dump."""
    bounds = bounds_of(path)
    if is_token(path):
        return (Device(path.parent, None, (path,), bounds),)

    def is_device(folder: Path) -> bool:
        return _is_device(folder, bounds)

    def folders_in(folder: Path, most_entries: int | None) -> list[Path]:
        return sub_folders(folder, most_entries, bounds=bounds)

    folders = process_folders(path, is_device, lambda folder: folder.name == TENSORS_FOLDER, folders_in)
    ranks = ranks_of([_number_of_device(folder.name) for folder in folders])
    return tuple(
        Device(folder, rank, token_folders(folder, bounds), bounds)
        for folder, rank in zip(folders, ranks, strict=True)
    )


def bounds_of(path: Path) -> Bounds:
    """Return what no link may lead out of: the path, but for a token what its process wrote."""
    bounds = Bounds.around(path)
    return Bounds(bounds.root.parent) if is_token(path) else bounds


def token_folders(device: Path, bounds: Bounds) -> tuple[Path, ...]:
    """Return the folders of a device's tokens in ascending order."""
    tokens = [folder for folder in sub_folders(device, bounds=bounds) if _is_token_name(folder.name)]
    return tuple(sorted(tokens, key=lambda folder: int(folder.name)))


def is_token(path: Path) -> bool:
    """Tell whether a path is the folder of one token: numbered, with module folders in it."""
    return _is_token_name(path.name) and any(
        is_module_name(folder.name) for folder in sub_folders(path, MOST_ENTRIES)
    )


def _is_token_name(name: str) -> bool:
    return _TOKEN_NAME.fullmatch(name) is not None


def is_module_name(name: str) -> bool:
    """Tell whether a folder is named like a module."""
    return name == "root" or name.startswith("root.")


def _is_device(path: Path, bounds: Bounds) -> bool:
    if is_file(path / TREE_FILE):
        return True
    return _DEVICE_NAME.fullmatch(path.name) is not None and any(
        map(is_token, sub_folders(path, MOST_ENTRIES, bounds=bounds))
    )


def _number_of_device(name: str) -> int | None:
    match = _DEVICE_NAME.fullmatch(name)
    return int(match["index"]) if match and match["index"] else None
