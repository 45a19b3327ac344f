"""What a checkpoint says beside its tensors: its index, its shards, and which weights are quantised.

model.safetensors.index.json    {"weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}
weight, weight_scale, weight_offset    →   weight, as fractions that a float checkpoint can be held against
"""

import os
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import MOST_ENTRIES, files_in, first_names, printable, problem_of_file
from firstdrift.dumps.storage.json_file import read_json
from firstdrift.errors import DumpUnreadableError
from firstdrift.groups import known, seconds
from firstdrift.model.slice import Problem
from firstdrift.model.tensor import QUANTISED, DataLocation, Role, TensorRecord
from firstdrift.wording.message import Message

_INDEX_SUFFIX: Final = ".index.json"
_SHARD_SUFFIXES: Final = frozenset({".safetensors", ".bin", ".pt", ".pth"})
_MOST_FOLDERS: Final = 16
_SHARD: Final = re.compile(
    r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})(?P<suffix>\.[a-z]+)", re.ASCII | re.DOTALL
)
_MOST_SHARDS: Final = 10_000

_SCALES: Final = ("weight_scale", "weight_scale_inv")
_OFFSETS: Final = ("weight_offset", "weight_zero_point")
_PACKED: Final = "weight_packed"
_WEIGHT: Final = "weight"
_STORED: Final = frozenset({"int8", "uint8", "float8_e4m3fn", "float8_e5m2"})
_PACKED_DTYPES: Final = frozenset({"int32"})
_PER_WORD: Final = 8
_USUAL_BLOCK: Final = 128
_CONTAINER: Final = "quantised"


class Index(Struct, frozen=True):
    """Which tensor lies in which file, by the index of a checkpoint.

    Attributes:
        folder: where the index and the files lie.
        shards: name of the file of each tensor.
        files: names of the files.
    """

    folder: Path
    shards: Mapping[str, str]
    files: frozenset[str]

    def names_file(self, file: Path) -> bool:
        """Tell whether a file is one of those that the index names."""
        return file.parent == self.folder and printable(file.name) in self.files

    def missing(self, there: Container[Path]) -> Iterator[tuple[Path, str]]:
        """Yield which of the files are not there: folder and name."""
        yield from ((self.folder, name) for name in sorted(self.files) if self.folder / name not in there)

    def why_not(self, shard: str, there: Container[Path], damage: Mapping[Path, Message]) -> Message:
        """Say why a tensor that lies in a shard, as the index says, was not found."""
        file = self.folder / shard
        if file in damage:
            return problem_of_file(shard, damage[file])
        if file not in there:
            return Message.of("dumps.checkpoint.shard_missing", shard=shard)
        return problem_of_file(shard, Message.of("dumps.checkpoint.not_in_shard"))


class Part(Struct, frozen=True, array_like=True):
    """Where a tensor lies: the file, seen from the folder of the weight, its layout, the entry in it."""

    file: str
    container: str
    entry: str


class Description(Struct, frozen=True, omit_defaults=True):
    """What the fractions of a quantised weight are made from; stands in `DataLocation.entry` as JSON.

    Attributes:
        weight: the whole numbers.
        scale: what they are multiplied with.
        offset: what is taken from them before; None for nothing.
        is_packed: whether the weight, and the offset, lie eight in a word.
        by: the keys of scale and offset.
    """

    weight: Part
    scale: Part
    offset: Part | None = None
    is_packed: bool = False
    by: tuple[str, ...] = ()


def description_of(entry: str) -> Description | None:
    """Read a description back; None if it is none."""
    try:
        return msgspec.json.decode(entry, type=Description)
    except msgspec.MsgspecError:
        return None


def how_dequantised(record: TensorRecord) -> tuple[str, ...]:
    """Return the tensors by which one was made from whole numbers ("weight_scale"); none if it was not."""
    location = record.location
    said = description_of(location.entry) if location and location.container == _CONTAINER else None
    return tuple(said.by) if said else ()


def fits(scale: tuple[int, ...], weight: tuple[int, ...]) -> bool:
    """Tell whether a scale of a shape can be laid along a weight of a shape."""
    if all(size == 1 for size in scale):
        return True
    if len(scale) == 1 and len(weight) > 1:
        return scale[0] == weight[0]
    return len(scale) == len(weight) and all(
        block_of(length, count) is not None for count, length in zip(scale, weight, strict=True)
    )


def block_of(length: int, count: int) -> int | None:
    """Return over how many indices of a dimension each of `count` scales reaches; None if they do not fit.

    Blocks are of one size but for the last, which may be smaller where the size is a power of two: 128 where
    that fits, as block-wise float8 has it.
    """
    if count in (1, length):
        return length // max(count, 1)
    if not 0 < count < length:
        return None
    if -(-length // _USUAL_BLOCK) == count:
        return _USUAL_BLOCK
    if length % count == 0:
        return length // count
    block = 1 << (-(-length // count) - 1).bit_length()
    return block if -(-length // block) == count else None


def read_indexes(files: Iterable[Path], bounds: Bounds) -> tuple[tuple[Index, ...], tuple[Problem, ...]]:
    """Read the indexes beside the files of a checkpoint; one that cannot be read is a problem."""
    folders = dict.fromkeys(file.parent for file in files if file.suffix in _SHARD_SUFFIXES)
    indexes: list[Index] = []
    problems: list[Problem] = []
    beside = (files_in(folder, MOST_ENTRIES, bounds=bounds) for folder in islice(folders, _MOST_FOLDERS))
    for file in chain.from_iterable(beside):
        try:
            indexes += [_read_index(file)] if file.name.endswith(_INDEX_SUFFIX) else []
        except DumpUnreadableError as exc:
            problems.append(Problem(printable(file.name), exc.message))
    return tuple(indexes), tuple(problems)


class _IndexFile(Struct):
    weight_map: dict[str, str]


def _read_index(file: Path) -> Index:
    try:
        said = msgspec.convert(read_json(file).value, _IndexFile)
    except msgspec.ValidationError as exc:
        raise DumpUnreadableError(Message.of("dumps.checkpoint.no_weight_map"), path=file) from exc
    shards = {printable(name): printable(shard) for name, shard in said.weight_map.items()}
    return Index(file.parent, shards, frozenset(shards.values()))


def missing_shards(files: Iterable[Path], indexes: Iterable[Index]) -> list[Problem]:
    """Say which shards are missing, by the index or by the numbers in the names of the others."""
    there = set(files)
    indexed = {index.folder: index for index in indexes}
    missing = list(chain.from_iterable(index.missing(there) for index in indexes))
    missing += _missing_by_number(file for file in there if file.parent not in indexed)
    if not missing:
        return []
    names = first_names(seconds(missing))
    reason = Message.of("dumps.checkpoint.shards_missing", count=len(missing), shards=names)
    return [Problem(printable(missing[0][0].name), reason)]


def _missing_by_number(files: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    numbers: defaultdict[tuple[Path, str, int, str], set[int]] = defaultdict(set)
    for file in files:
        if match := _SHARD.fullmatch(file.name):
            stem, number, count, suffix = match.group("stem", "number", "count", "suffix")
            numbers[file.parent, stem, int(count), suffix].add(int(number))
    for (folder, stem, count, suffix), there in numbers.items():
        for number in sorted({*range(1, min(count, _MOST_SHARDS) + 1)} - there):
            yield folder, f"{stem}-{number:05}-of-{count:05}{suffix}"


def is_shard(name: str) -> bool:
    """Tell the name of a part of a checkpoint."""
    return _SHARD.fullmatch(name) is not None


def dequantised(records: Sequence[TensorRecord]) -> tuple[TensorRecord, ...]:
    """Make fractions of the quantised weight of a module, where its scale was saved as well."""
    parameters = {record.key: record for record in records if record.role is Role.PARAMETER}

    def first(keys: Iterable[str]) -> TensorRecord | None:
        return next(filter(None, map(parameters.get, keys)), None)

    weight, scale = first((_PACKED, _WEIGHT)), first(_SCALES)
    fractions = (weight and scale and _fractions(weight, scale, first(_OFFSETS))) or weight
    return tuple(fractions if fractions and record is weight else record for record in records)


def _fractions(weight: TensorRecord, scale: TensorRecord, offset: TensorRecord | None) -> TensorRecord | None:
    """Return the fractions that a weight stands for; None if that is not known."""
    is_packed = weight.key == _PACKED
    shape = _shape(weight, is_packed=is_packed)
    made_of = known((weight, scale, offset))
    places = known(map(_readable, made_of))
    if shape is None or len(places) < len(made_of) or not fits(scale.shape or (), shape):
        return None
    where = places[0]
    parts = [Part(os.path.relpath(at.file, where.file.parent), at.container, at.entry) for at in places]
    keys = tuple(record.key for record in made_of[1:])
    description = Description(parts[0], parts[1], next(iter(parts[2:]), None), is_packed, keys)
    return replace(
        weight,
        key=_WEIGHT,
        dtype=f"{QUANTISED}{'int4' if is_packed else weight.dtype}",
        shape=shape,
        digest=None,
        location=DataLocation(where.file, _CONTAINER, msgspec.json.encode(description).decode()),
    )


def _readable(record: TensorRecord) -> DataLocation | None:
    return None if record.problem or record.shape is None else record.location


def _shape(weight: TensorRecord, *, is_packed: bool) -> tuple[int, ...] | None:
    """Return the shape of the fractions that a weight stands for; None if its dtype stands for none."""
    if weight.dtype not in (_PACKED_DTYPES if is_packed else _STORED):
        return None
    shape = weight.shape
    return (*shape[:-1], shape[-1] * _PER_WORD) if shape and is_packed else shape
