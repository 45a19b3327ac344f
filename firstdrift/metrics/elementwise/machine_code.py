"""The compiled kernel as machine code, kept on disk and run without numba.

    kernel/ ─ numba, some seconds, once ─▶ __pycache__/kernel-1f3a….x86-64-v4.o ─ llvmlite, 4 ms ─▶ a function

A file holds for one level of processors, one version of LLVM and one text of the kernel: its name says which.
Of x86 those of all levels are made, so that an image runs well wherever it was built. Who installs makes them
beside Python's own compiled modules, where later runs may not write; who cannot write there has them in the
cache directory of the user, of which nothing is run that others may have put there.
"""

import ctypes
import hashlib
import os
import stat
import time
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

Function = Callable[[Any, Any, Any], int]

_HERE: Final = Path(__file__).parent
_SOURCES: Final = ("layout.py", "machine_code.py", "sums.py", "kernel/*.py")
_LEVELS: Final = {
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "x86-64-v3": ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"),
}
"""What processors of a level have that others lack, the best level first."""

_SYMBOL: Final = "firstdrift_measure"
_DIGEST_SIZE: Final = hashlib.sha256().digest_size
_PART: Final = ".part"
_BEING_WRITTEN: Final = 3600.0
_IN_USE: Final = 30 * 24 * 3600.0
"""Seconds after which nobody uses a file: one that was not written to its end, and one that was."""

_KEPT: list[Any] = []
"""What holds the machine code in memory, for as long as this process lives."""


def load() -> Function | None:
    """Return the kernel as an earlier run has left it; None if none has."""
    if not any(any(folder.glob("kernel-*.o")) for folder in _folders()):
        return None
    code = next(filter(None, (_read(folder / _name(_level())) for folder in _folders())), None)
    return None if code is None else _function(code)


def compile_and_keep() -> Function:
    """Compile the kernel, and leave it for later runs where that is allowed.

    Raises:
        RuntimeError: LLVM would call functions that are not there, to do what this processor cannot.
    """
    if _level() not in _levels():
        raise RuntimeError("this processor lacks what the code needs")
    kernel = import_module("firstdrift.metrics.elementwise.kernel.tensors")
    name, text = kernel.compiled()
    parse = partial(_llvm().parse_assembly, text.replace(name, _SYMBOL))
    code = {
        level: _machine(level).emit_object(parse()) for level in _levels()
    }  # which changes what it is given
    for folder in _folders():
        with suppress(OSError):
            for level, made in code.items():
                _write(folder / _name(level), made)
            _remove_others(folder, set(map(_name, code)))
            break
    return _function(code[_level()])


def _folders() -> Iterator[Path]:
    yield _HERE / "__pycache__"
    with suppress(RuntimeError):  # a user without a home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "firstdrift"


def _remove_others(folder: Path, current: Container[str]) -> None:
    """Remove code of other kernels, and what a run that was killed has left behind.

    Only this version uses the package's own folder; in the cache lies what other versions use, too.
    """
    now, is_shared = time.time(), not _is_own(folder)
    for file in folder.glob("kernel-*"):
        if file.name in current:
            continue
        with suppress(OSError):
            unused = now - file.lstat().st_mtime
            if unused > (_BEING_WRITTEN if file.suffix == _PART else _IN_USE if is_shared else 0.0):
                file.unlink()


def _is_own(folder: Path) -> bool:
    return folder.parent == _HERE


def _name(level: str) -> str:
    texts = [file.read_bytes() for source in _SOURCES for file in sorted(_HERE.glob(source))]
    made_by = _llvm().llvm_version_info, _llvm().get_process_triple()
    digest = hashlib.sha256(b"\0".join([*texts, repr(made_by).encode()])).hexdigest()
    return f"kernel-{digest[:16]}.{level}.o"


@cache
def _llvm() -> Any:  # noqa: ANN401 (a module)
    llvm = import_module("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


def _levels() -> tuple[str, ...]:
    """Return the levels of processors like this one."""
    return tuple(_LEVELS) if _llvm().get_process_triple().startswith("x86_64") else (_level(),)


def _level() -> str:
    """Return the level of this processor, or its name where there are no levels."""
    has = _llvm().get_host_cpu_features()
    levels = (level for level, needs in _LEVELS.items() if all(map(has.get, needs)))
    return next(levels, str(_llvm().get_host_cpu_name()))


def _machine(level: str) -> Any:  # noqa: ANN401 (a machine that LLVM makes code for)
    features = "" if level in _LEVELS else _llvm().get_host_cpu_features().flatten()
    target = _llvm().Target.from_default_triple()
    return target.create_target_machine(cpu=level, features=features, opt=3, codemodel="jitdefault", jit=True)


def _function(code: bytes) -> Function:
    engine = _llvm().create_mcjit_compiler(_llvm().parse_assembly(""), _machine(_level()))
    engine.add_object_file(_llvm().ObjectFileRef.from_data(code))
    engine.finalize_object()
    _KEPT.append(engine)
    arguments = [ctypes.c_void_p] * 3
    return ctypes.CFUNCTYPE(ctypes.c_int32, *arguments)(engine.get_function_address(_SYMBOL))


def _read(file: Path) -> bytes | None:
    """Return the code in a file; None if there is none, others may have written it, or it was cut short."""
    with suppress(OSError):
        # Whoever writes into the package's own folder may as well write Python's compiled modules.
        if not _is_own(file.parent):
            if not all(map(_is_mine, (file.parent, file))):
                return None
            os.utime(file)  # it is in use
        kept = file.read_bytes()
        digest, code = kept[:_DIGEST_SIZE], kept[_DIGEST_SIZE:]
        return code if hashlib.sha256(code).digest() == digest else None
    return None


def _is_mine(path: Path) -> bool:
    """Tell whether nobody but this user, and the administrator, may write a file or folder."""
    status = path.lstat()
    return status.st_uid in {0, os.geteuid()} and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _write(file: Path, code: bytes) -> None:
    if not _is_own(file.parent):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=file.parent, prefix="kernel-", suffix=_PART, delete=False) as written:
        try:
            written.write(hashlib.sha256(code).digest() + code)
            written.flush()
        except OSError:
            Path(written.name).unlink()
            raise
    os.chmod(written.name, 0o644)  # noqa: PTH101 (a string is as good)
    os.replace(written.name, file)  # noqa: PTH105
