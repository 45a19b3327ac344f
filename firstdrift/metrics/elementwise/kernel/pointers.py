"""Plain pointers and the bits of floats, which numba has no words for, and how the kernel is compiled."""

# ruff: noqa: ANN401, ARG001 (numba hands over types of its own, and takes arguments by their number)

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import numba
import numba.extending
from llvmlite import ir

Function = TypeVar("Function", bound=Callable[..., Any])
Pointer: TypeAlias = Any
Number: TypeAlias = Any
"""What numba makes of a number, whatever numpy or Python would."""

Lowering: TypeAlias = tuple[Any, Callable[[Any, Any, Any, Any], Any]]

_types: Any = numba.types
FLOAT32, FLOAT64 = _types.float32, _types.float64
INT16, INT32, INT64 = _types.int16, _types.int32, _types.int64
UINT8, UINT16, UINT32, UINT64 = _types.uint8, _types.uint16, _types.uint32, _types.uint64

_ALONE: Final[Mapping[str, Any]] = {
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
"""Options of functions that no other code calls than the kernel's: nothing raises."""


def _intrinsic(lowering: Callable[..., Lowering]) -> Any:
    intrinsic: Any = numba.extending.intrinsic
    return intrinsic(lowering)


def exact(function: Function) -> Function:
    """Compile with every operation as written."""
    compiled: Function = numba.njit(function, **_ALONE)
    return compiled


def reassociating(function: Function) -> Function:
    """Compile with leave to reorder and fuse additions."""
    compiled: Function = numba.njit(function, fastmath={"reassoc", "contract"}, **_ALONE)
    return compiled


@_intrinsic
def pointer(_: Any, address: Any, dtype: Any) -> Lowering:
    """Take an address for a pointer to numbers of a dtype."""
    kind = _types.CPointer(dtype.dtype)

    def lower(context: Any, builder: Any, _: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(kind))

    return kind(_types.intp, dtype), lower


@_intrinsic
def shifted(_: Any, start: Any, count: Any) -> Lowering:
    """Return a pointer to so many numbers behind another."""
    return start(start, _types.intp), lambda _, builder, __, values: builder.gep(values[0], [values[1]])


@_intrinsic
def bits_of(_: Any, value: Any) -> Lowering:
    """Return the integer that a float64 consists of."""
    return INT64(FLOAT64), _cast(ir.IntType(64))


@_intrinsic
def float_of(_: Any, bits: Any) -> Lowering:
    """Return the float64 that consists of an integer."""
    return FLOAT64(INT64), _cast(ir.DoubleType())


@_intrinsic
def float_of_half(_: Any, bits: Any) -> Lowering:
    """Return the value of the float16 that consists of an integer."""
    return FLOAT64(UINT16), _cast(ir.HalfType(), ir.DoubleType())


@_intrinsic
def float_of_single(_: Any, bits: Any) -> Lowering:
    """Return the value of the float32 that consists of an integer."""
    return FLOAT64(UINT32), _cast(ir.FloatType(), ir.DoubleType())


def _cast(kind: Any, *wider: Any) -> Callable[[Any, Any, Any, Any], Any]:
    """Return what takes bits for those of another type, and widens them if asked to."""

    def lower(_: Any, builder: Any, __: Any, values: Any) -> Any:
        found = builder.bitcast(values[0], kind)
        return builder.fpext(found, *wider) if wider else found

    return lower


def compiled_alone(function: Callable[[Pointer], None]) -> tuple[str, str]:
    """Compile a function of an array of integers; return its name, and its code as LLVM has it."""
    signature = (_types.CPointer(INT64),)
    dispatcher: Any = numba.njit(signature, **_ALONE)(function)
    return dispatcher.overloads[signature].fndesc.llvm_func_name, dispatcher.inspect_llvm(signature)
