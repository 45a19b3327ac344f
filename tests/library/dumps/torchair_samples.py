"""Write TorchAir dumps: GE files byte by byte, FX files, and the texts of graphs."""

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

CODES = {
    "float32": 1,
    "float16": 2,
    "int8": 3,
    "uint8": 4,
    "int16": 5,
    "uint16": 6,
    "int32": 7,
    "int64": 8,
    "uint32": 9,
    "uint64": 10,
    "bool": 11,
    "float64": 12,
    "complex64": 16,
    "complex128": 17,
    "bfloat16": 27,
    "float8_e5m2": 34,
    "float8_e4m3fn": 35,
    "float8_e8m0fnu": 36,
}


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def data(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def shape(dims: Sequence[int], *, packed: bool = True) -> bytes:
    if packed:
        return data(1, b"".join(map(varint, dims))) if dims else b""
    return b"".join(number(1, dim) for dim in dims)


def tensor(
    values: Array,
    *,
    output: bool = False,
    code: int | None = None,
    layout: int = 2,
    meant: Sequence[int] | None = None,
    size: int | None = None,
    inline: bytes = b"",
    packed: bool = True,
) -> bytes:
    """Encode what a header says of a tensor."""
    place = 5 if output else 4
    message = number(1, CODES[values.dtype.name] if code is None else code) + number(2, layout)
    message += data(3, shape(values.shape, packed=packed))
    message += data(place, inline) if inline else b""
    message += number(place + 1, values.nbytes if size is None else size)
    return message + data(place + 2, shape(values.shape if meant is None else meant))


def ge_file(
    inputs: Iterable[Array] = (),
    outputs: Iterable[Array] = (),
    *,
    name: str = "Op",
    messages: tuple[Sequence[bytes], Sequence[bytes]] | None = None,
    rest: bytes = b"",
) -> bytes:
    """Encode a file; the messages of its tensors may be given apart from their values."""
    inputs, outputs = list(inputs), list(outputs)
    said = messages or ([tensor(one) for one in inputs], [tensor(one, output=True) for one in outputs])
    header = data(1, b"2.0") + number(2, 1_734_070_081_498_000)
    header += b"".join(data(3, message) for message in said[1])
    header += b"".join(data(4, message) for message in said[0])
    header += data(6, name.encode())
    return (
        struct.pack("<Q", len(header))
        + header
        + b"".join(one.tobytes() for one in (*inputs, *outputs))
        + rest
    )


def floats(*dims: int, seed: int = 0, dtype: str = "float16") -> Array:
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    return np.random.default_rng(seed).standard_normal(dims).astype(kind)


def write(file: Path, contents: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(contents)
    return file


def write_fx(folder: Path, node: str, at: int, inputs: Iterable[Array], outputs: Iterable[Array]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for role, arrays in (("INPUT", inputs), ("OUTPUT", outputs)):
        for index, array in enumerate(arrays):
            np.save(folder / f"{node}.{role}.{index}.{20250101000000000000 + at}.npy", array)


def write_ge(
    folder: Path, type_name: str, name: str, at: int, inputs: Iterable[Array], outputs: Iterable[Array]
) -> Path:
    file = folder / f"{type_name}.{name}.{at}.7.{1_734_070_081_000_000 + at}"
    return write(file, ge_file(inputs, outputs, name=name))


def operator(name: str, type_name: str, inputs: Iterable[str], *fx_outputs: str) -> str:
    """Write an operator of a graph as TorchAir does; an output without a name is ""."""
    lines = ["op {", f'  name: "{name}"', f'  type: "{type_name}"']
    lines += [f'  input: "{one}"' for one in inputs]
    for at, said in enumerate(fx_outputs):
        lines += ["  output_desc {", f'    name: "y{at}"', "    dtype: DT_FLOAT16"]
        if said:
            lines += ["    attr {", '      key: "_fx_tensor_name"', "      value {", f'        s: "{said}"']
            lines += ["      }", "    }"]
        lines += ["  }"]
    return "\n".join([*lines, "}\n"])
