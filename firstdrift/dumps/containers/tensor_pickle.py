"""Read the pickles in files of `torch.save` without executing them.

    BINPERSID, (0, (2, 3), (3, 1)), REDUCE _rebuild_tensor_v2   →   TensorLayout("float32", "0", 0, …)

A pickle is a small program. Here it runs on a machine that knows numbers, text, containers and the
few functions that describe tensors; those functions are names in a table, and what they build are
records. No callable is ever looked up: a call of anything else gives a record that says so.
"""

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from math import prod
from operator import mul
from typing import Any, NamedTuple

from msgspec import Struct

from firstdrift.dumps.containers.contents import Contents, DamagedError, quoted, unpack, whole_numbers
from firstdrift.dumps.containers.values import DTYPES
from firstdrift.wording.message import Message

_MOST_VALUES = 1_000_000
_MOST_OPERATIONS = 4_000_000
"""Steps of the program that a pickle is; forty go into a tensor, so that 100,000 of them are described.

Each step takes a microsecond and makes at most one object of a hundred bytes.
"""

_DEEPEST = 32
_LONGEST_NAME = 1000
_CACHED_UP_TO = 64 * 1024


class TensorLayout(Struct, frozen=True):
    """Where the values of a tensor lie in its storage.

    Attributes:
        dtype: torch's name, which is numpy's or ml_dtypes' too.
        storage: key of the storage.
        offset: first element in the storage.
        shape: dimensions; None if the tensor is of a kind that cannot be read.
        strides: elements from one index to the next, by dimension.
        is_conjugate: the values are the complex conjugates of what is stored.
        is_negative: the values are the negatives of what is stored.
        problem: why the tensor cannot be read.
    """

    dtype: str = ""
    storage: str = ""
    offset: int = 0
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] = ()
    is_conjugate: bool = False
    is_negative: bool = False
    problem: Message | None = None

    @property
    def size(self) -> int:
        """How many elements it has."""
        return prod(self.sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The dimensions; none where they are not known."""
        return self.shape or ()

    @property
    def reach(self) -> int:
        """Over how many elements of its storage it reaches, from its first to its last."""
        behind_last: int = sum(map(mul, self.sizes, self.strides))
        return 1 + behind_last - sum(self.strides)

    @property
    def is_contiguous(self) -> bool:
        """Tell whether its elements lie in order, with nothing between them."""
        expected = 1
        for length, stride in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if length != 1 and stride != expected:
                return False
            expected *= length
        return True


Layouts = tuple[tuple[str, TensorLayout], ...]


class Unpickled(NamedTuple):
    """What a pickle describes: its value, the offset behind it, and the dtype of each storage it names."""

    value: object
    end: int
    storages: dict[str, str | None]


def tensor_layouts(pickle: bytes) -> Layouts:
    """Return every tensor of a pickle with its name."""
    return _cached_layouts(pickle) if len(pickle) <= _CACHED_UP_TO else _last_layouts(pickle)


def named_layouts(value: object) -> Layouts:
    """Collect the tensors in dicts, lists and tuples.

    A name is empty where the value is itself a tensor, and otherwise made of the keys and positions
    that lead to it: `{"model": [tensor]}` gives "model.0". A second one that would be named alike, as of
    `{"model": [tensor], "model.0": tensor}`, is "model.0 (2)".
    """
    times: Counter[str] = Counter()
    named: dict[str, TensorLayout] = {}
    for name, layout in _walk(value):
        own = name
        while own in named:
            times[name] += 1
            own = f"{name} ({times[name] + 1})"
        named[own] = layout
    return tuple(named.items())


def unpickle(contents: Contents, start: int) -> Unpickled:
    """Read the pickle that begins at an offset."""
    machine = _Machine(contents, start)
    try:
        value = machine.run()
    except DamagedError:
        raise
    except (IndexError, KeyError, TypeError, ValueError, struct.error) as exc:
        raise DamagedError(Message.of("dumps.pt.pickle_damaged")) from exc
    return Unpickled(value, machine.at, machine.storages)


def _layouts(pickle: bytes) -> Layouts:
    return named_layouts(unpickle(pickle, 0).value)


# The files of a dump repeat a few shapes, and files of one shape have the same pickle.
_cached_layouts = lru_cache(maxsize=1024)(_layouts)
_last_layouts = lru_cache(maxsize=2)(_layouts)


def _walk(root: object) -> Iterator[tuple[str, TensorLayout]]:
    waiting: list[tuple[tuple[object, ...], object]] = [((), root)]
    seen = 0
    while waiting:
        keys, value = waiting.pop()
        seen += 1
        if seen > _MOST_VALUES or len(keys) > _DEEPEST:
            raise DamagedError(Message.of("dumps.pt.nested_too_deeply"))
        if isinstance(value, TensorLayout):
            yield _dotted(keys), value
        elif isinstance(value, dict):
            waiting.extend(((*keys, key), value[key]) for key in reversed(value))
        elif isinstance(value, list | tuple):
            waiting.extend(((*keys, at), value[at]) for at in reversed(range(len(value))))


def _dotted(keys: tuple[object, ...]) -> str:
    name = ".".join(map(str, keys))
    if len(name) > _LONGEST_NAME:
        raise DamagedError(Message.of("dumps.file.name_too_long", most=_LONGEST_NAME))
    return name


class _Global(Struct, frozen=True):
    """A name that the pickle refers to; never the thing itself."""

    module: str
    name: str

    def call(self, arguments: tuple[Any, ...]) -> object:
        """Return the record of what a call would build."""
        builder = _BUILDERS.get(f"{self.module} {self.name}")
        if builder is None:
            name = quoted(f"{self.module}.{self.name}")
            return TensorLayout(problem=Message.of("dumps.pt.unknown_builder", builder=name))
        return builder(*arguments)


class _Storage(Struct, frozen=True):
    key: str
    dtype: str | None


def _tensor(
    storage: object, offset: object, shape: object, strides: object, dtype: str | None, metadata: object
) -> TensorLayout:
    if not isinstance(storage, _Storage):
        raise DamagedError(Message.of("dumps.pt.no_storage"))
    sizes, steps = whole_numbers(shape), whole_numbers(strides)
    (first,) = whole_numbers((offset,))
    if len(sizes) != len(steps):
        counts = {"dimensions": len(sizes), "strides": len(steps)}
        raise DamagedError(Message.of("dumps.pt.strides_do_not_fit", **counts))
    if dtype not in DTYPES:
        problem = Message.of("dumps.pt.unknown_dtype", dtype=quoted(dtype or ""))
        return TensorLayout(dtype or "", shape=sizes, problem=problem)
    views = metadata if isinstance(metadata, dict) else {}
    return TensorLayout(
        dtype,
        storage.key,
        first,
        sizes,
        steps,
        is_conjugate=bool(views.get("conj")),
        is_negative=bool(views.get("neg")),
    )


def _rebuild_typed(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> TensorLayout:  # noqa: ANN401
    """Take what torch writes; the rest is requires_grad, hooks and metadata."""
    return _tensor(
        storage, offset, shape, strides, getattr(storage, "dtype", None), rest[-1] if rest else None
    )


def _rebuild_untyped(*arguments: Any) -> TensorLayout:  # noqa: ANN401
    """Take the same with the dtype after the hooks."""
    storage, offset, shape, strides, _, _, dtype, *metadata = arguments
    name = dtype.name if isinstance(dtype, _Global) else None
    return _tensor(storage, offset, shape, strides, name, metadata[-1] if metadata else None)


def _rebuild_from_type(
    function: _Global, _type: object, arguments: tuple[Any, ...], _state: object
) -> object:
    """Take a tensor of a subclass or with attributes: how its values are built, and what else it is."""
    return function.call(arguments)


def _first(value: object, *_: object) -> object:
    return value


def _ordered_dict(pairs: Any = ()) -> dict[object, object]:  # noqa: ANN401
    result: dict[object, object] = {}
    for key, value in pairs:
        _set(result, key, value)
    return result


def _set(target: object, key: object, value: object) -> None:
    if isinstance(target, dict):
        # Other keys could be nested so deeply that hashing them overflows the C stack.
        target[key if isinstance(key, str | int | float | None) else f"entry {len(target)}"] = value


_BUILDERS: dict[str, Callable[..., object]] = {
    "torch._utils _rebuild_tensor": _rebuild_typed,
    "torch._utils _rebuild_tensor_v2": _rebuild_typed,
    "torch._utils _rebuild_tensor_v3": _rebuild_untyped,
    # torch_npu adds the format on the device, but saves a plain copy.
    "torch_npu.utils.storage _rebuild_npu_tensor": _rebuild_typed,
    "torch._utils _rebuild_device_tensor_from_cpu_tensor": _first,
    "torch._utils _rebuild_parameter": _first,
    "torch._utils _rebuild_parameter_with_state": _first,
    "torch._tensor _rebuild_from_type_v2": _rebuild_from_type,
    "torch Size": _first,
    "torch device": lambda *_: None,
    "collections OrderedDict": _ordered_dict,
}

_STORAGE_DTYPES: dict[str, str | None] = {
    "BoolStorage": "bool",
    "ByteStorage": "uint8",
    "CharStorage": "int8",
    "ShortStorage": "int16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "UntypedStorage": None,
}


class _Machine:
    """Bytes, a position in them, a stack of values, marks into it, and a memo."""

    __slots__ = ("at", "left", "marks", "memo", "pickle", "stack", "storages")

    def __init__(self, pickle: Contents, at: int) -> None:
        self.pickle = pickle
        self.at = at
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.storages: dict[str, str | None] = {}
        self.left = _MOST_OPERATIONS

    def work(self, steps: int) -> None:
        """Take note of work that one operation makes besides itself."""
        self.left -= steps
        if self.left < 0:
            raise DamagedError(Message.of("dumps.pt.too_many_steps", most=_MOST_OPERATIONS))

    def run(self) -> object:
        pickle = self.pickle
        while True:
            code = pickle[self.at]
            self.at += 1
            self.left -= 1
            if self.left < 0:
                self.work(0)
            if code == _STOP:
                return self.stack[-1]
            operation = _OPERATIONS.get(code)
            if operation is None:
                raise DamagedError(Message.of("dumps.pt.unknown_operation", code=f"{code:#x}"))
            operation(self)

    def number(self, form: struct.Struct) -> Any:  # noqa: ANN401 (int or float, as the form says)
        (value,) = unpack(form, self.pickle, self.at)
        self.at += form.size
        return value

    def text(self, length: int) -> str:
        return self.take(length).decode("utf-8", "backslashreplace")

    def take(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self.pickle):
            raise IndexError
        taken = self.pickle[self.at : end]
        self.at = end
        return taken

    def line(self) -> str:
        end = self.pickle.find(b"\n", self.at)
        value = self.text(max(end - self.at, 0))
        self.at += 1
        return value

    def since_mark(self) -> list[Any]:
        mark = self.marks.pop()
        values = self.stack[mark:]
        del self.stack[mark:]
        return values

    def last(self, count: int) -> tuple[Any, ...]:
        if len(self.stack) < count:
            raise IndexError
        values = tuple(self.stack[-count:])
        del self.stack[-count:]
        return values


_Operation = Callable[[_Machine], object]


def _push(value: _Operation) -> _Operation:
    return lambda machine: machine.stack.append(value(machine))


def _push_tuple(count: int) -> _Operation:
    return lambda machine: machine.stack.append(machine.last(count))


def _push_nothing_for(size: _Operation) -> _Operation:
    """Stand in for bytes, which no tensor is made of."""

    def push(machine: _Machine) -> None:
        machine.take(size(machine))  # type: ignore[arg-type]
        machine.stack.append(None)

    return push


def _put(form: struct.Struct) -> _Operation:
    def put(machine: _Machine) -> None:
        machine.memo[machine.number(form)] = machine.stack[-1]

    return put


def _extend(machine: _Machine, values: Any) -> None:  # noqa: ANN401
    if isinstance(machine.stack[-1], list):
        machine.stack[-1].extend(values)


def _extend_since_mark(machine: _Machine) -> None:
    _extend(machine, machine.since_mark())


def _set_pairs(machine: _Machine, values: Any) -> None:  # noqa: ANN401
    for key, value in zip(values[::2], values[1::2], strict=True):
        _set(machine.stack[-1], key, value)


def _stack_global(machine: _Machine) -> None:
    module, name = machine.last(2)
    if not isinstance(module, str) or not isinstance(name, str):
        raise TypeError
    machine.stack.append(_Global(module, name))


def _call(machine: _Machine) -> None:
    function, arguments = machine.last(2)
    if not isinstance(function, _Global) or not isinstance(arguments, tuple):
        raise DamagedError(Message.of("dumps.pt.calls_no_function"))
    # What is taken from the memo may be long, and be handed to one function after another.
    machine.work(sum(len(one) for one in arguments if isinstance(one, list | tuple | dict)))
    machine.stack.append(function.call(arguments))


def _persistent(machine: _Machine) -> None:
    ((kind, storage_class, key, _, _, *view),) = machine.last(1)
    if kind != "storage" or not isinstance(storage_class, _Global) or not isinstance(key, str) or any(view):
        raise DamagedError(Message.of("dumps.pt.refers_to_no_storage"))
    plain_name = storage_class.name.removesuffix("Storage").lower()
    dtype = _STORAGE_DTYPES.get(storage_class.name, plain_name)
    machine.storages.setdefault(key, dtype)
    machine.stack.append(_Storage(key, dtype))


_U1, _U2, _U4, _U8 = map(struct.Struct, ("<B", "<H", "<I", "<Q"))
_I4, _F8 = struct.Struct("<i"), struct.Struct(">d")


def _long(machine: _Machine) -> int:
    return int.from_bytes(machine.take(machine.number(_U1)), "little", signed=True)


_STOP = ord(".")
_OPERATIONS: dict[int, _Operation] = {
    0x80: lambda machine: machine.take(1),  # PROTO
    0x95: lambda machine: machine.take(8),  # FRAME
    ord("("): lambda machine: machine.marks.append(len(machine.stack)),
    ord("0"): lambda machine: machine.last(1),
    ord("N"): _push(lambda _: None),
    0x88: _push(lambda _: True),
    0x89: _push(lambda _: False),
    ord("J"): _push(lambda machine: machine.number(_I4)),
    ord("K"): _push(lambda machine: machine.number(_U1)),
    ord("M"): _push(lambda machine: machine.number(_U2)),
    0x8A: _push(_long),
    ord("G"): _push(lambda machine: machine.number(_F8)),
    ord("X"): _push(lambda machine: machine.text(machine.number(_U4))),
    0x8C: _push(lambda machine: machine.text(machine.number(_U1))),
    0x8D: _push(lambda machine: machine.text(machine.number(_U8))),
    ord("U"): _push(lambda machine: machine.text(machine.number(_U1))),
    ord("C"): _push_nothing_for(lambda machine: machine.number(_U1)),
    ord("B"): _push_nothing_for(lambda machine: machine.number(_U4)),
    0x8E: _push_nothing_for(lambda machine: machine.number(_U8)),
    0x8B: _push_nothing_for(lambda machine: machine.number(_U4)),  # LONG4
    ord(")"): _push(lambda _: ()),
    ord("t"): _push(lambda machine: tuple(machine.since_mark())),
    0x85: _push_tuple(1),
    0x86: _push_tuple(2),
    0x87: _push_tuple(3),
    ord("]"): _push(lambda _: []),
    0x8F: _push(lambda _: []),  # EMPTY_SET
    ord("a"): lambda machine: _extend(machine, machine.last(1)),
    ord("e"): _extend_since_mark,
    0x90: _extend_since_mark,  # ADDITEMS
    ord("}"): _push(lambda _: {}),
    ord("s"): lambda machine: _set_pairs(machine, machine.last(2)),
    ord("u"): lambda machine: _set_pairs(machine, machine.since_mark()),
    ord("q"): _put(_U1),
    ord("r"): _put(_U4),
    0x94: lambda machine: machine.memo.update({len(machine.memo): machine.stack[-1]}),
    ord("h"): _push(lambda machine: machine.memo[machine.number(_U1)]),
    ord("j"): _push(lambda machine: machine.memo[machine.number(_U4)]),
    ord("c"): _push(lambda machine: _Global(machine.line(), machine.line())),
    0x93: _stack_global,
    ord("R"): _call,
    0x81: _call,  # NEWOBJ
    # The state of an object is left aside: of a state dict it is `_metadata`, which holds no tensor.
    ord("b"): lambda machine: machine.last(1),
    ord("Q"): _persistent,
}
