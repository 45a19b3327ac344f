"""Multiply tensors by matrices before they are compared, as msprobe's tensor postprocess file says.

    right_matmul:
      target_tensor_map:
        rotation.pt:                                 target tensor @ rotation
          - Functional.linear.0.forward.output.0.pt
      golden_tensor_map: {}
    left_matmul: ...                                 likewise from the left
    left_right_matmul:
      left_target_tensor_map: ...                    both

A tensor is named by its file, as msprobe does, or by node and tensor (`root.lm_head.output.0`), which every
format has. Paths are those of msprobe: absolute, or from the working directory; failing that, from the file.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.storage.tensor_data import CONTAINER_BY_SUFFIX, read_headers
from firstdrift.errors import SettingsError, TensorUnreadableError
from firstdrift.files import TooLargeError, read_regular
from firstdrift.matching.plan import SlicePlan, TensorPair
from firstdrift.matching.tensors import shapes_differ
from firstdrift.metrics.comparability import Shape, common_shape
from firstdrift.model.tensor import DataLocation, TensorRecord
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import shape as shape_of
from firstdrift.wording.phrases import side_named

_LARGEST_FILE: Final = 16 * 2**20
_LONGEST_SHOWN: Final = 5
_MATRIX: Final = 2
_MAPS: Final = {
    "right_matmul": {"target_tensor_map": ("target", "right"), "golden_tensor_map": ("golden", "right")},
    "left_matmul": {"target_tensor_map": ("target", "left"), "golden_tensor_map": ("golden", "left")},
    "left_right_matmul": {
        "left_target_tensor_map": ("target", "left"),
        "right_target_tensor_map": ("target", "right"),
        "left_golden_tensor_map": ("golden", "left"),
        "right_golden_tensor_map": ("golden", "right"),
    },
}
"""Of each key of the file, which dump it is about, and from which side a matrix multiplies."""


_FROM_LEFT: Final = "matching.postprocess.from_left"
_FROM_RIGHT: Final = "matching.postprocess.from_right"


class Matrix(Struct, frozen=True):
    """A matrix that multiplies a tensor: where it lies, and its shape."""

    location: DataLocation
    shape: Shape


class Postprocess(Struct, frozen=True):
    """What a postprocess file says.

    Attributes:
        golden: the matrices on the left and on the right of golden tensors, by the tensor's name in the
            file; likewise target.
    """

    golden: Mapping[str, tuple[Matrix | None, Matrix | None]]
    target: Mapping[str, tuple[Matrix | None, Matrix | None]]


def read_postprocess(path: Path) -> Postprocess:
    """Read a tensor postprocess file of msprobe.

    Raises:
        SettingsError: it cannot be read, says something that makes no sense, or names no matrix.
    """
    sides: dict[str, dict[str, tuple[Matrix | None, Matrix | None]]] = {"golden": {}, "target": {}}
    for section, key, matrix_file, names in _entries(path, _read(path)):
        side, place = _MAPS[section][key]
        matrix = _matrix(path, matrix_file)
        for name in names:
            left, right = sides[side].get(name, (None, None))
            if (left if place == "left" else right) is not None:
                raise SettingsError(f"{name} of {side} has two matrices on its {place}", path=path)
            sides[side][name] = (matrix, right) if place == "left" else (left, matrix)
    return Postprocess(**sides)


def apply(postprocess: Postprocess, plan: SlicePlan) -> SlicePlan:
    """Declare in a plan by what its tensors are multiplied; names that no pair has become a note."""
    unused = {"golden": set(postprocess.golden), "target": set(postprocess.target)}
    pairs = tuple(_apply(pair, postprocess, unused) for pair in plan.pairs)
    notes = tuple(_unused(side, names) for side, names in unused.items() if names)
    return replace(plan, pairs=pairs, notes=(*plan.notes, *notes))


def _unused(side: str, names: set[str]) -> Message:
    """Say which tensors of a side no pair has; of many the first few."""
    shown, more = tuple(sorted(names)[:_LONGEST_SHOWN]), max(0, len(names) - _LONGEST_SHOWN)
    if more:
        return Message.of("matching.postprocess.many_unused", side=side_named(side), names=shown, more=more)
    return Message.of("matching.postprocess.unused", side=side_named(side), names=shown)


def _apply(pair: TensorPair, postprocess: Postprocess, unused: dict[str, set[str]]) -> TensorPair:
    records, said = {}, list(pair.transform)
    for side, maps in (("golden", postprocess.golden), ("target", postprocess.target)):
        record, node = getattr(pair, side), getattr(pair, f"{side}_node")
        name = next((name for name in _names(node, record) if name in maps), None)
        if name is None:
            continue
        unused[side].discard(name)
        if pair.incomparable is not None and record.location is None:
            continue
        if pair.is_joined or record.location is None:
            why = "matching.postprocess.joined" if pair.is_joined else "matching.postprocess.not_saved"
            return replace(pair, incomparable=Message.of(why, side=side_named(side)))
        left, right = maps[name]
        shape = _shape_of_product(record.shape, left, right)
        if shape is None:
            shapes = tuple(shape_of(each.shape or ()) for each in (left, record, right) if each is not None)
            why_not = Message.of("matching.postprocess.do_not_fit", side=side_named(side), shapes=shapes)
            return replace(pair, incomparable=why_not)
        location = replace(
            record.location,
            left=left.location if left else None,
            right=right.location if right else None,
        )
        records[side] = replace(record, location=location, shape=shape, statistics=None, digest=None)
        said += [
            Message.of(how, side=side_named(side), matrix=matrix.location.file.name)
            for how, matrix in ((_FROM_LEFT, left), (_FROM_RIGHT, right))
            if matrix is not None
        ]
    if not records:
        return pair
    changed = replace(pair, **records, transform=tuple(said), incomparable=None)
    golden, target = changed.golden.shape, changed.target.shape
    if golden is None or target is None:
        return changed
    if common_shape(golden, target, may_reshape=bool(pair.transform)) is None:
        return replace(changed, incomparable=shapes_differ(golden, target))
    return changed


def _names(node: str, record: TensorRecord) -> Iterator[str]:
    if record.location is not None:
        yield record.location.file.name
    yield f"{node}.{record.label}"


def _shape_of_product(shape: Shape | None, left: Matrix | None, right: Matrix | None) -> Shape | None:
    """Return the shape of left @ tensor @ right; None if they do not fit, or the tensor's is not known."""
    if shape is None:
        return None
    if left is not None:
        if len(shape) < _MATRIX or left.shape[1] != shape[-2]:
            return None
        shape = (*shape[:-2], left.shape[0], shape[-1])
    if right is not None:
        if not shape or shape[-1] != right.shape[0]:
            return None
        shape = (*shape[:-1], right.shape[1])
    return shape


def _entries(path: Path, said: Any) -> Iterator[tuple[str, str, str, list[str]]]:  # noqa: ANN401 (any YAML)
    for section, maps in _mapping(path, "the file", said).items():
        if section not in _MAPS:
            raise SettingsError(
                f"there is no postprocess {section!r}", path=path, hint=f"Choose of {', '.join(_MAPS)}"
            )
        for key, entries in _mapping(path, section, maps).items():
            if key not in _MAPS[section]:
                known = ", ".join(_MAPS[section])
                raise SettingsError(f"{section} has no key {key!r}", path=path, hint=f"Choose of {known}")
            for matrix_file, names in _mapping(path, key, entries).items():
                if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                    raise SettingsError(
                        f"{section}, {key}, {matrix_file!r}: holds no list of names", path=path
                    )
                yield section, key, matrix_file, names


def _mapping(path: Path, what: str, said: Any) -> Mapping[str, Any]:  # noqa: ANN401
    if said is None:
        return {}
    if not isinstance(said, dict) or not all(isinstance(key, str) for key in said):
        raise SettingsError(f"{what} holds no mapping from names", path=path)
    return said


def _read(path: Path) -> Any:  # noqa: ANN401
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        text = read_regular(path, most=_LARGEST_FILE).decode("utf-8-sig")
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=loader)):
            raise SettingsError("aliases are not allowed in it", path=path)
        return yaml.load(text, Loader=loader)  # noqa: S506 (a safe loader, in C where there is one)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        reason = "is no YAML" if mark is None else f"line {mark.line + 1}: is no YAML"
        raise SettingsError(reason, path=path) from error
    except TooLargeError as error:
        raise SettingsError(f"is no postprocess file: {error.reason}", path=path) from error
    except OSError as error:
        raise SettingsError(f"cannot be read ({error.strerror})", path=path) from error


def _matrix(path: Path, named: str) -> Matrix:
    file = Path(named)
    if not file.is_absolute() and not file.exists():
        file = path.parent / file
    container = CONTAINER_BY_SUFFIX.get(file.suffix)
    if container is None:
        raise SettingsError(f"it is no file of a tensor ({', '.join(CONTAINER_BY_SUFFIX)})", path=file)
    try:
        headers = read_headers(file, container)
    except TensorUnreadableError as error:
        raise SettingsError(f"the matrix cannot be read: {error.reason}", path=file) from error
    if len(headers) != 1 or headers[0].shape is None or headers[0].problem is not None:
        raise SettingsError("it does not hold one tensor that can be read", path=file)
    shape = headers[0].shape
    if len(shape) != _MATRIX:
        raise SettingsError(f"it holds no matrix: its shape is {list(shape)}", path=file)
    return Matrix(DataLocation(file, container, headers[0].entry), shape)
