"""The results of many slices, of which most lie in a temporary file: memory does not grow with their number.

result ─▶ add ─────────────┐    as it is, so long as there are few
├─▶ whole: a sequence, which reads what lies in the file when it is asked for
compressed ─▶ add_packed ──┘    into the file, as are those that come after many
"""

import os
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Final, TypeAlias, overload
from weakref import finalize

from msgspec import Struct
from msgspec.structs import astuple, fields, replace

from firstdrift.comparison.report import SliceResult
from firstdrift.errors import LimitError
from firstdrift.processes.packed import pack, unpack
from firstdrift.verdict.judgement import Finding
from firstdrift.verdict.series import with_bad_output
from firstdrift.wording.message import Message

_MOST_HELD: Final = 1 << 17
"""So many pairs of tensors stay in memory: some 400 MB, as large as the largest slice that is usual."""

_QUICKLY: Final = 1
"""Level of compression: higher ones save a tenth and take longer."""


class _Packed(Struct, frozen=True):
    """Where a result lies in the file, and what was found of its output since."""

    start: int
    size: int
    bad: Finding | None = None


_Kept: TypeAlias = SliceResult | _Packed


class SliceResults:
    """Collects results, by their position in the comparison."""

    def __init__(self, *, kept: bool = True) -> None:
        """Begin without results; those that nobody will ask for are not kept."""
        self._results: dict[int, _Kept | None] = {}
        self._is_kept = kept
        self._held = 0
        self._file: _File | None = None

    def add(self, position: int, result: SliceResult) -> None:
        """Keep a result.

        Raises:
            LimitError: there is no space for it.
        """
        size = len(result.plan.pairs)
        if self._is_kept and self._held + size > _MOST_HELD and self._results:
            try:
                self.add_packed(position, compressed(result))
            except UnicodeEncodeError:  # a name has characters that no file can hold
                self._results[position] = result
            return
        self._held += size
        self._results[position] = result if self._is_kept else None

    def add_packed(self, position: int, packed: bytes | None) -> None:
        """Keep a result that `compressed` wrote; None if nobody will ask for it.

        Raises:
            LimitError: there is no space for it.
        """
        if packed is None:
            self._results[position] = None
            return
        self._file = self._file or _File()
        self._results[position] = _Packed(self._file.append(packed), len(packed))

    def settle(self, position: int, bad: Finding) -> None:
        """Let the logits of a pair of slices be bad."""
        match self._results.get(position):
            case SliceResult() as result:
                self._results[position] = _settled(result, bad)
            case _Packed() as packed:
                self._results[position] = replace(packed, bad=bad)

    def whole(self) -> Sequence[SliceResult]:
        """Return all results, in execution order."""
        ordered = [self._results[position] for position in sorted(self._results)]
        held = [one for one in ordered if isinstance(one, SliceResult)]
        return tuple(held) if len(held) == len(ordered) else _FromFile(ordered, self._file)


@contextmanager
def _there_is_room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = Message.of("comparison.results_not_held", why=error.strerror or str(error))
        hint = Message.of("comparison.name_other_tmpdir")
        raise LimitError(why, path=tempfile.tempdir or os.environ.get("TMPDIR"), hint=hint) from error


class _File:
    """A temporary file that is there as long as anybody holds on to it."""

    def __init__(self) -> None:
        with _there_is_room():
            self._file: IO[bytes] = tempfile.TemporaryFile(prefix="firstdrift-")  # noqa: SIM115
        finalize(self, self._file.close)

    def append(self, content: bytes) -> int:
        """Write something at the end; return where it begins."""
        with _there_is_room():
            start = self._file.seek(0, os.SEEK_END)
            self._file.write(content)
            self._file.flush()
        return start

    def read(self, start: int, size: int) -> bytes:
        """Read something that was written."""
        return os.pread(self._file.fileno(), size, start)


class _FromFile(Sequence[SliceResult]):
    """Results of which some lie in a file."""

    def __init__(self, results: Sequence[_Kept | None], file: _File | None) -> None:
        self._results, self._file = results, file

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[SliceResult]:
        return map(self.__getitem__, range(len(self)))  # which holds none while it reads the next

    @overload
    def __getitem__(self, at: int) -> SliceResult: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[SliceResult]: ...
    def __getitem__(self, at: int | slice) -> SliceResult | Sequence[SliceResult]:
        if isinstance(at, slice):
            return _FromFile(self._results[at], self._file)
        match self._results[at]:
            case SliceResult() as result:
                return result
            case _Packed(start=start, size=size, bad=bad) if self._file is not None:
                result = restored(self._file.read(start, size))
                return result if bad is None else _settled(result, bad)
        raise LookupError("this comparison was told that nobody would ask for its rows and pairs")


def compressed(result: SliceResult) -> bytes:
    """Write a result, part by part: while one is read, the others take little room.

    Raises:
        UnicodeEncodeError: a name has characters that UTF-8 lacks.
    """
    return pack([zlib.compress(pack(part), _QUICKLY) for part in astuple(result)])


def restored(packed: bytes) -> SliceResult:
    """Read what `compressed` wrote."""
    parts = zip(fields(SliceResult), unpack(list[bytes], packed), strict=True)
    return SliceResult(*(unpack(field.type, zlib.decompress(part)) for field, part in parts))


def _settled(result: SliceResult, bad: Finding) -> SliceResult:
    return replace(result, judgement=with_bad_output(result.judgement, bad, result.rows))
