"""Which files a dump may be read from: none that a link fetches from elsewhere.

    dump/rank0/x.pt ─▶ dump/rank1/x.pt    followed: it lies in the dump
    dump/rank0/x.pt ─▶ ../../other/x.pt   refused: it is a link that leads out of the dump

Dumps are handed on, and one that was made to show more of a machine than its user meant to open must not
be able to. So the folder that was opened is the bound, wherever it lies and however it was reached: of a
dump of which only `step0/rank0` was opened, a link to `step0/rank1` is refused, though it would be followed
if the whole dump were opened. Only where a reader has to look around the part that was named (one token
of msit, one process of an ATB dump) is the bound the folder that it looks in.
"""

import errno
import os
from pathlib import Path
from typing import Self

from msgspec import Struct

from firstdrift.errors import DumpUnreadableError, PathOutsideRootsError
from firstdrift.files import Entry
from firstdrift.paths import inside
from firstdrift.wording.message import Message

_LEADS_OUT = Message.of("dumps.link.leads_out")
_IN_A_CIRCLE = Message.of("dumps.link.in_a_circle")
HINT = Message.of("dumps.link.open_both")


class Bounds(Struct, frozen=True):
    """The folder that no link may lead out of.

    Attributes:
        root: its real path.
    """

    root: Path

    @classmethod
    def around(cls, opened: Path) -> Self:
        """Return the bounds of what was opened: a folder, or the folder of a file."""
        folder = opened if os.path.isdir(opened) else opened.parent  # noqa: PTH112 (never raises)
        return cls(Path(os.path.realpath(folder)))

    def refusal(self, entry: Entry | Path) -> Message | None:
        """Say why an entry of a folder in bounds must not be read; None if it may be.

        Nothing is resolved unless the entry itself is a link, so that asking about each entry of
        `scan_folder` costs next to nothing.
        """
        try:
            is_link = entry.is_symlink()
        except OSError:  # nobody may look: whoever tries to read it says so
            return None
        return self._why_not(os.fspath(entry)) if is_link else None

    def require(self, file: Path) -> Path:
        """Return a file as it was given, or refuse it; any part of its path may be a link.

        Raises:
            DumpUnreadableError: it leads out of the bounds.
        """
        reason = self._why_not(file)
        if reason is not None:
            raise DumpUnreadableError(reason, path=file, hint=HINT)
        return file

    def _why_not(self, file: str | Path) -> Message | None:
        try:
            inside([self.root], file)
        except PathOutsideRootsError:
            return _IN_A_CIRCLE if _is_circle(file) else _LEADS_OUT
        return None


def _is_circle(file: str | Path) -> bool:
    try:
        os.stat(file)  # noqa: PTH116 (a string is as good)
    except OSError as exc:
        return exc.errno == errno.ELOOP
    except ValueError:
        pass
    return False
