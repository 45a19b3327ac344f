"""The records of msprobe's dump.json as `TensorRecord`s.

    {"input_args": [{"type": "torch.Tensor", "dtype": "torch.float32", ...}, [{"type": "int", "value": 3}]],
     "input_kwargs": {"mask": null}, "output": [...]}                →   input.0, input.1.0, output.0

`null` and `{}` stand for "no value" and give no record.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from math import prod
from os.path import splitext
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from firstdrift.dumps.containers.contents import LARGEST_NUMBER
from firstdrift.dumps.msprobe.tree import RECOMPUTED
from firstdrift.dumps.msprobe.typed_records import NOT_FINITE, ScalarLeaf, TensorLeaf, as_recorded
from firstdrift.dumps.nodes import with_distinct_keys
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import problem_of_file
from firstdrift.dumps.storage.json_file import items_of
from firstdrift.files import scan_folder
from firstdrift.model.tensor import DataLocation, Role, Statistics, TensorRecord
from firstdrift.wording.message import Message, joined

DATA_FOLDER: Final = "dump_tensor_data"

_ROLES: Final = {
    "input_args": Role.INPUT,
    "input_kwargs": Role.INPUT,
    "input": Role.INPUT,
    "output": Role.OUTPUT,
    "parameters": Role.PARAMETER,
}
_NOTES: Final = frozenset({"is_nan", "parallel_merge_info", RECOMPUTED})
"""Keys of a record that describe it and hold no values."""

_CONTAINERS: Final = {".pt": "pt", ".npy": "npy"}
_TENSOR_TYPES: Final = frozenset({"torch.Tensor", "mindspore.Tensor"})
_DTYPE_MODULES: Final = frozenset({"torch", "mindspore", "mstype"})
_BESIDE_A_SCALAR: Final = frozenset({"type", "Max", "Min", "Mean", "Norm"})
"""Where ranks were merged, a value that is no tensor has statistics too, which say no more than it does."""

_WHOLE: Final = frozenset({int})

_NUMBERS: Final = {"True": 1.0, "False": 0.0} | NOT_FINITE
"""Statistics that are text: booleans where ranks were merged, and what is not finite."""

_OTHER_DTYPE_NAMES: Final = {
    "bool_": "bool",
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e5m2": "float8_e5m2",
}


class Record(Struct):
    """What one dump.json says of a node.

    Attributes:
        tensors: the values of the node.
        problems: what is malformed.
        is_recomputed: whether the node ran again, as activation checkpointing has it.
    """

    tensors: tuple[TensorRecord, ...]
    problems: list[Message]
    is_recomputed: bool


class RecordReader(Struct):
    """Turns the records of one dump.json into `TensorRecord`s.

    Attributes:
        folder: where the values of its tensors lie.
        bounds: what no link among them may lead out of.
    """

    folder: Path
    bounds: Bounds
    _folder_refusal: Message | None = None
    _files: dict[str, Message | None] | None = None
    """Names of the files there, and why one must not be read (None: it may be)."""

    def tensors_of(self, record: object, problems: list[Message]) -> tuple[TensorRecord, ...]:
        """Return inputs, outputs and parameters of a module or an operator call; say what is malformed."""
        found: list[TensorRecord] = []
        for section, values in _parts(record, problems):
            role = _ROLES.get(section)
            if role is None:
                problems += _unknown_part(section)
            elif isinstance(values, (list, dict)):
                for key, value in items_of(values):
                    self._collect(role, key, value, found)
            elif values is not None:
                without = {"part": section, "recorded": _describe(values)}
                problems.append(Message.of("dumps.record.no_values", **without))
        return with_distinct_keys(found)

    def gradients_of(self, record: object, problems: list[Message]) -> tuple[TensorRecord, ...]:
        """Return the gradients of a `parameters_grad` record: each lies in a list of its own."""
        found: list[TensorRecord] = []
        for name, values in _parts(record, problems):
            if name in _NOTES:
                continue
            only = values[0] if isinstance(values, list) and len(values) == 1 else values
            self._collect(Role.GRADIENT, name, only, found)
        return with_distinct_keys(found)

    def _collect(self, role: Role, key: str, value: object, found: list[TensorRecord]) -> None:
        if isinstance(value, TensorLeaf):
            found.append(self._tensor(role, key, value))
        elif isinstance(value, ScalarLeaf):
            found.append(TensorRecord(role, key, value.type_name, (), scalar=str(as_recorded(value.value))))
        else:
            self._collect_json(role, key, value, found)

    def _collect_json(self, role: Role, key: str, value: object, found: list[TensorRecord]) -> None:
        kind = value.get("type") if isinstance(value, dict) else None
        if isinstance(kind, str) and isinstance(value, dict):
            is_tensor = kind in _TENSOR_TYPES or "shape" in value or "dtype" in value
            found.append(self._tensor(role, key, _leaf(value)) if is_tensor else _scalar(role, key, value))
        elif isinstance(value, (dict, list)):
            for name, inner in items_of(value):
                self._collect(role, f"{key}.{name}", inner, found)
        elif value is not None:
            found.append(TensorRecord(role, key, type(value).__name__, (), scalar=str(value)))

    def _tensor(self, role: Role, key: str, leaf: TensorLeaf) -> TensorRecord:
        problems: list[Message] = []
        shape, statistics = _shape(leaf.shape, problems), _statistics(leaf, problems)
        return TensorRecord(
            role,
            key,
            _dtype(leaf.dtype, problems),
            shape,
            statistics,
            None if leaf.md5 is None else str(as_recorded(leaf.md5)),
            None if leaf.data_name is None else self._location(leaf.data_name, problems),
            None,
            leaf.requires_grad if isinstance(leaf.requires_grad, bool) else None,
            joined(*problems) if problems else None,
        )

    def _location(self, data_name: object, problems: list[Message]) -> DataLocation | None:
        if not isinstance(data_name, str) or not _is_file_name(data_name):
            named = {"name": repr(data_name), "folder": DATA_FOLDER}
            problems.append(Message.of("dumps.record.no_file_name", **named))
            return None
        container = _CONTAINERS.get(splitext(data_name)[1])  # noqa: PTH122 (a Path takes ten times as long)
        if container is None:
            problems.append(Message.of("dumps.record.other_file", file=data_name))
            return None
        files = self._data_files()
        shown = f"{DATA_FOLDER}/{data_name}"
        if self._folder_refusal is not None:
            problems.append(problem_of_file(DATA_FOLDER, self._folder_refusal))
            return None
        if refusal := files.get(data_name):
            problems.append(problem_of_file(shown, refusal))
            return None
        if data_name not in files:
            problems.append(Message.of("dumps.record.file_missing", file=shown))
        return DataLocation(self.folder / data_name, container)

    def _data_files(self) -> Mapping[str, Message | None]:
        if self._files is None:
            self._files = {}
            self._folder_refusal = self.bounds.refusal(self.folder)
            if not self._folder_refusal:
                with suppress(OSError), scan_folder(self.folder) as entries:
                    self._files = {entry.name: self.bounds.refusal(entry) for entry in entries}
        return self._files


def _parts(record: object, problems: list[Message]) -> Iterable[tuple[str, object]]:
    if isinstance(record, dict):
        return record.items()
    problems.append(Message.of("dumps.record.no_object", recorded=_describe(record)))
    return ()


def _unknown_part(section: str) -> list[Message]:
    return [] if section in _NOTES else [Message.of("dumps.record.unknown_part", part=repr(section))]


def _dtype(recorded: object, problems: list[Message]) -> str:
    if not isinstance(recorded, str):
        problems.append(Message.of("dumps.record.bad_dtype", recorded=_describe(recorded)))
        return ""
    return canonical_dtype(recorded)


@lru_cache(maxsize=256)
def canonical_dtype(recorded: str) -> str:
    """Return numpy's or ml_dtypes' name: "torch.bfloat16" and "BFloat16" (MindSpore) are "bfloat16"."""
    module, _, name = recorded.rpartition(".")
    if module not in _DTYPE_MODULES:
        name = recorded
    if name[:1].isalpha():
        name = name.lower()
    return _OTHER_DTYPE_NAMES.get(name, name)


def _scalar(role: Role, key: str, leaf: Mapping[str, Any]) -> TensorRecord:
    rest = {name: value for name, value in leaf.items() if name not in _BESIDE_A_SCALAR}
    value = next(iter(rest.values())) if len(rest) == 1 else rest
    return TensorRecord(role, key, leaf["type"], (), scalar=str(value))


def _leaf(recorded: Mapping[str, Any]) -> TensorLeaf:
    """Take what is recorded of a tensor, whatever it is."""
    fields: list[Any] = [recorded.get(name) for name in TensorLeaf.__struct_fields__]
    return TensorLeaf(*fields)


def _shape(recorded: object, problems: list[Message]) -> tuple[int, ...] | None:
    sizes = recorded if isinstance(recorded, tuple) else _whole_numbers(recorded)
    if sizes is not None and _are_sizes(sizes):
        return sizes
    problems.append(Message.of("dumps.record.bad_shape", recorded=_describe(recorded)))
    return None


def _whole_numbers(recorded: object) -> tuple[int, ...] | None:
    if type(recorded) is list and _WHOLE.issuperset(map(type, recorded)):
        return tuple(recorded)
    return None


@lru_cache
def _are_sizes(numbers: tuple[int, ...]) -> bool:
    return not numbers or (min(numbers) >= 0 and max(*numbers, prod(numbers)) <= LARGEST_NUMBER)


def _statistics(leaf: TensorLeaf, problems: list[Message]) -> Statistics | None:
    recorded = maximum, minimum, mean, norm = leaf.Max, leaf.Min, leaf.Mean, leaf.Norm
    if type(maximum) is type(minimum) is type(mean) is type(norm) is float:
        return Statistics(maximum, minimum, mean, norm)
    if recorded == (None, None, None, None):
        return None
    try:
        return Statistics(*map(_number, recorded))
    except (TypeError, OverflowError):
        problems.append(Message.of("dumps.record.bad_statistics", recorded=_describe(list(recorded))))
        return None


def _number(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, float | int):
        return float(value)
    if isinstance(value, str) and value in _NUMBERS:
        return _NUMBERS[value]
    raise TypeError


def _is_file_name(name: str) -> bool:
    return name not in {"", ".", ".."} and not ("/" in name or "\\" in name or "\0" in name)


def _describe(value: object) -> str:
    text = repr(value)
    longest = 60
    return text if len(text) <= longest else f"{text[:longest]}..."
