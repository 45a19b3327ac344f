"""The compiled kernel as machine code, kept on disk and run without numba.

    kernel.py ─ numba, some seconds, once ─▶ __pycache__/kernel-1f3a….o ─ llvmlite, 4 ms ─▶ a function

A file holds for one processor, one version of LLVM and one text of the kernel: its name says which. Who
installs makes it beside Python's own compiled modules, where later runs may not write; who cannot write there
has one in the cache directory of the user.
"""

import ctypes
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

Function = Callable[[Any, Any, Any], int]

_HERE: Final = Path(__file__).parent
_SOURCES: Final = ("layout.py", "machine_code.py", "kernel/*.py")
_SYMBOL: Final = "firstdrift_measure"
_DIGEST_SIZE: Final = hashlib.sha256().digest_size
_KEPT: list[Any] = []
"""What holds the machine code in memory, for as long as this process lives."""


def load() -> Function | None:
    """Return the kernel as an earlier run has left it; None if none has."""
    if not any(any(folder.glob("kernel-*.o")) for folder in _folders()):
        return None
    code = next(filter(None, map(_read, _files())), None)
    return None if code is None else _function(code)


def compile_and_keep() -> Function:
    """Compile the kernel, and leave it for later runs where that is allowed."""
    kernel = import_module("firstdrift.metrics.elementwise.kernel.tensors")
    name, text = kernel.compiled()
    llvm, machine = _llvm()
    code: bytes = machine.emit_object(llvm.parse_assembly(text.replace(name, _SYMBOL)))
    for file in _files():
        with suppress(OSError):
            _write(file, code)
            break
    return _function(code)


def _folders() -> Iterator[Path]:
    yield _HERE / "__pycache__"
    with suppress(RuntimeError):  # a user without a home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "firstdrift"


def _files() -> list[Path]:
    return [folder / f"kernel-{_key()}.o" for folder in _folders()]


@cache
def _key() -> str:
    llvm, machine = _llvm()
    texts = [file.read_bytes() for source in _SOURCES for file in sorted(_HERE.glob(source))]
    places = llvm.llvm_version_info, machine.triple, llvm.get_host_cpu_name(), _features(llvm)
    return hashlib.sha256(b"\0".join([*texts, repr(places).encode()])).hexdigest()[:16]


@cache
def _llvm() -> tuple[Any, Any]:
    """Return what binds LLVM, and the machine that it makes code for: this one."""
    llvm = import_module("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm, llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=_features(llvm), opt=3, codemodel="jitdefault", jit=True
    )


def _features(llvm: Any) -> str:  # noqa: ANN401 (a module)
    flat: str = llvm.get_host_cpu_features().flatten()
    return flat


def _function(code: bytes) -> Function:
    llvm, machine = _llvm()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _KEPT.append(engine)
    arguments = [ctypes.c_void_p] * 3
    return ctypes.CFUNCTYPE(ctypes.c_int32, *arguments)(engine.get_function_address(_SYMBOL))


def _read(file: Path) -> bytes | None:
    """Return the code in a file; None if there is none, or it was cut short."""
    with suppress(OSError):
        kept = file.read_bytes()
        digest, code = kept[:_DIGEST_SIZE], kept[_DIGEST_SIZE:]
        return code if hashlib.sha256(code).digest() == digest else None
    return None


def _write(file: Path, code: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=file.parent, delete=False) as written:
        written.write(hashlib.sha256(code).digest() + code)
    os.chmod(written.name, 0o644)  # noqa: PTH101 (a string is as good)
    os.replace(written.name, file)  # noqa: PTH105
