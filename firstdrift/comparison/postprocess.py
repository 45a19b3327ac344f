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

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.storage.tensor_data import CONTAINER_BY_SUFFIX, read_headers
from firstdrift.dumps.storage.views import LEFT, RIGHT
from firstdrift.errors import SettingsError, TensorUnreadableError
from firstdrift.files import TooLargeError, read_regular
from firstdrift.matching.plan import SlicePlan, TensorPair
from firstdrift.matching.tensors import shapes_differ
from firstdrift.metrics.comparability import Shape, common_shape
from firstdrift.model.tensor import DataLocation, TensorRecord, ViewStep
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import shape as shape_of
from firstdrift.wording.phrases import side_named

_LARGEST_FILE: Final = 16 * 2**20
_LONGEST_SHOWN: Final = 5
_MATRIX: Final = 2
_MAPS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
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


class Matrix(Struct, frozen=True):
    """A matrix that multiplies a tensor: where it lies, and its shape."""

    location: DataLocation
    shape: Shape


class Factors(Struct, frozen=True):
    """The matrices that multiply a tensor, from its left and from its right."""

    left: Matrix | None = None
    right: Matrix | None = None

    def shape_of(self, shape: Shape | None) -> Shape | None:
        """Return the shape of left @ tensor @ right; None if they do not fit, or it is not known."""
        if shape is not None and self.left is not None:
            fits = len(shape) >= _MATRIX and self.left.shape[1] == shape[-2]
            shape = (*shape[:-2], self.left.shape[0], shape[-1]) if fits else None
        if shape is not None and self.right is not None:
            shape = (*shape[:-1], self.right.shape[1]) if shape[-1:] == self.right.shape[:1] else None
        return shape

    def applied(self, record: TensorRecord) -> TensorRecord | None:
        """Return the product as it is computed when it is read; None if shapes do not fit."""
        shape = self.shape_of(record.shape)
        if shape is None or record.location is None:
            return None
        factors = ((LEFT, self.left), (RIGHT, self.right))
        steps = (ViewStep(side, other=(matrix.location,)) for side, matrix in factors if matrix is not None)
        location = replace(record.location, view=(*record.location.view, *steps))
        return replace(record, location=location, shape=shape, statistics=None, digest=None)

    def described(self, side: Message) -> Iterator[Message]:
        """Say by what a tensor of a side is multiplied."""
        for how, matrix in (("from_left", self.left), ("from_right", self.right)):
            if matrix is not None:
                file = matrix.location.file.name
                yield Message(f"matching.postprocess.{how}", {"side": side, "matrix": file})


class Postprocess(Struct, frozen=True):
    """What a postprocess file says.

    Attributes:
        golden: what multiplies golden tensors, by the tensor's name in the file; likewise target.
    """

    golden: Mapping[str, Factors]
    target: Mapping[str, Factors]


def read_postprocess(path: Path) -> Postprocess:
    """Read a tensor postprocess file of msprobe.

    Raises:
        SettingsError: it cannot be read, says something that makes no sense, or names no matrix.
    """
    sides: dict[str, dict[str, Factors]] = {"golden": {}, "target": {}}
    for (side, place), matrix_file, names in _entries(path, _read(path)):
        matrix = _matrix(path, matrix_file)
        for name in names:
            factors = sides[side].get(name, Factors())
            if getattr(factors, place) is not None:
                raise SettingsError(_two_matrices(name, side, place), path=path)
            sides[side][name] = replace(factors, **{place: matrix})
    return Postprocess(**sides)


def _two_matrices(name: str, side: str, place: str) -> Message:
    where = Message(f"comparison.postprocess.{place}")
    return Message.of("comparison.postprocess.two_matrices", name=name, side=side_named(side), place=where)


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
    records: dict[str, TensorRecord] = {}
    done = list(pair.transform)
    for side, factors_of in (("golden", postprocess.golden), ("target", postprocess.target)):
        record: TensorRecord = getattr(pair, side)
        name = next(filter(factors_of.__contains__, _names(getattr(pair, f"{side}_node"), record)), None)
        if name is None:
            continue
        unused[side].discard(name)
        if pair.incomparable is not None and record.location is None:
            continue
        factors = factors_of[name]
        product = None if pair.is_joined else factors.applied(record)
        if product is None:
            return replace(pair, incomparable=_why_not(pair, record, factors, side_named(side)))
        records[side] = product
        done += factors.described(side_named(side))
    return _compared_again(pair, records, tuple(done)) if records else pair


def _why_not(pair: TensorPair, record: TensorRecord, factors: Factors, side: Message) -> Message:
    if pair.is_joined:
        return Message.of("matching.postprocess.joined", side=side)
    if record.location is None:
        return Message.of("matching.postprocess.not_saved", side=side)
    terms = (factors.left, record, factors.right)
    shapes = tuple(shape_of(each.shape or ()) for each in terms if each is not None)
    return Message.of("matching.postprocess.do_not_fit", side=side, shapes=shapes)


def _compared_again(
    pair: TensorPair, records: Mapping[str, TensorRecord], transform: tuple[Message, ...]
) -> TensorPair:
    changed = replace(pair, **records, transform=transform, incomparable=None)
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


def _entries(path: Path, content: Any) -> Iterator[tuple[tuple[str, str], str, list[str]]]:  # noqa: ANN401 (any YAML)
    """Yield each matrix file with the side and place that it is for, and the names of tensors."""
    for section, maps in _mapping(path, None, content).items():
        if section not in _MAPS:
            why = Message.of("comparison.postprocess.no_section", name=section)
            raise SettingsError(why, path=path, hint=_one_of(_MAPS))
        for key, entries in _mapping(path, section, maps).items():
            if key not in _MAPS[section]:
                why = Message.of("comparison.postprocess.no_key", section=section, key=key)
                raise SettingsError(why, path=path, hint=_one_of(_MAPS[section]))
            for matrix, names in _mapping(path, key, entries).items():
                if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                    place = {"section": section, "key": key, "matrix": matrix}
                    raise SettingsError(Message.of("comparison.postprocess.no_names", **place), path=path)
                yield _MAPS[section][key], matrix, names


def _one_of(names: Iterable[str]) -> Message:
    return Message.of("error.choose_one", names=tuple(names))


def _mapping(path: Path, name: str | None, content: Any) -> Mapping[str, Any]:  # noqa: ANN401
    """Return a mapping from names, or raise; without a name it is the whole file."""
    if content is None:
        return {}
    if isinstance(content, dict) and all(isinstance(key, str) for key in content):
        return content
    if name is None:
        raise SettingsError(Message.of("comparison.postprocess.file_no_mapping"), path=path)
    raise SettingsError(Message.of("comparison.postprocess.no_mapping", name=name), path=path)


def _read(path: Path) -> Any:  # noqa: ANN401
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        text = read_regular(path, most=_LARGEST_FILE).decode("utf-8-sig")
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=loader)):
            raise SettingsError(Message.of("comparison.postprocess.aliases"), path=path)
        return yaml.load(text, Loader=loader)  # noqa: S506 (a safe loader, in C where there is one)
    # Of a value that is not what its tag says, PyYAML raises whatever it comes across.
    except (yaml.YAMLError, ValueError, RecursionError, AttributeError, LookupError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        if mark is None:
            raise SettingsError(Message.of("comparison.postprocess.no_yaml"), path=path) from error
        line = mark.line + 1
        raise SettingsError(Message.of("comparison.postprocess.no_yaml_at", line=line), path=path) from error
    except TooLargeError as error:
        why = Message.of("comparison.postprocess.too_large", why=error.message)
        raise SettingsError(why, path=path) from error
    except OSError as error:
        why = Message.of("comparison.postprocess.unreadable", why=error.strerror)
        raise SettingsError(why, path=path) from error


def _matrix(path: Path, named: str) -> Matrix:
    file = Path(named)
    if not file.is_absolute() and not file.exists():
        file = path.parent / file
    container = CONTAINER_BY_SUFFIX.get(file.suffix)
    if container is None:
        suffixes = tuple(CONTAINER_BY_SUFFIX)
        raise SettingsError(Message.of("comparison.postprocess.no_tensor_file", suffixes=suffixes), path=file)
    try:
        headers = read_headers(file, container)
    except TensorUnreadableError as error:
        why = Message.of("comparison.postprocess.matrix_unreadable", why=error.message)
        raise SettingsError(why, path=file) from error
    shape = headers[0].shape if len(headers) == 1 and headers[0].problem is None else None
    if shape is None:
        raise SettingsError(Message.of("comparison.postprocess.no_single_tensor"), path=file)
    if len(shape) != _MATRIX:
        raise SettingsError(Message.of("comparison.postprocess.no_matrix", shape=shape_of(shape)), path=file)
    return Matrix(DataLocation(file, container, headers[0].entry), shape)
