r"""Turn a path that came from a client into a file inside an allowed root, or refuse.

inside([/data], "/data/run/step0")      ─▶  /data/run/step0
inside([/data], "/data/../etc/passwd")  ─▶  PathOutsideRootsError
inside([/data], "/data/link-to-etc")    ─▶  PathOutsideRootsError

Names of files are bytes, and some are no UTF-8: names in GBK are common on Chinese disks. Where such a path
is shown or sent it is spelt in plain text, which is understood wherever a client names a path:

spelt(b"/data/\xb2\xe2")                 ─▶  r"/data/\xb2\xe2"
inside([/data], r"/data/\xb2\xe2")        ─▶  b"/data/\xb2\xe2"
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePath

from firstdrift.errors import PathOutsideRootsError
from firstdrift.wording.message import Message

_NO_UTF8 = re.compile("[\ud800-\udfff]")
_SPELT = re.compile(r"\\x(5c|[89a-f][0-9a-f])")
_FIRST_BYTE, _LAST_BYTE, _AS_SURROGATE = 0x80, 0xFF, 0xDC00
"""Bytes that are no ASCII, and where Python has them among the halves of characters (PEP 383)."""

_HINT = Message.of("paths.hint")


def spelt(path: str | PurePath) -> str:
    r"""Write a path, or a part of one, as text that UTF-8 has bytes for: \xb2 for a byte that is none.

    Backslashes of such a path are spelt too, so that `unspelt` gives it back; any other path is as it was.
    """
    text = str(path)
    if text.isascii() or _NO_UTF8.search(text) is None:
        return text
    return encodable(text.replace("\\", r"\x5c"))


def unspelt(text: str) -> str:
    r"""Undo `spelt`; a name that holds "\xb2" itself is taken for a spelling (`inside` looks for it)."""
    if "\\x" not in text:
        return text
    try:
        return os.fsdecode(os.fsencode(_SPELT.sub(_byte, text)))
    except UnicodeEncodeError:  # no file can be called so
        return text


def encodable(text: str) -> str:
    """Spell what UTF-8 has no bytes for, wherever it stands in a text: a byte, or half of a character."""
    return text if text.isascii() else _NO_UTF8.sub(_spelling, text)


def printable(text: str) -> str:
    r"""Spell out control and format characters: a escape character becomes `\x1b`, a new line `\n`."""
    if text.isprintable():
        return text
    return "".join(
        mark if mark.isprintable() else mark.encode("unicode_escape").decode("ascii") for mark in text
    )


def _byte(spelling: re.Match[str]) -> str:
    code = int(spelling[1], 16)
    return chr(code if code < _FIRST_BYTE else code + _AS_SURROGATE)


def _spelling(surrogate: re.Match[str]) -> str:
    code = ord(surrogate[0])
    byte = code - _AS_SURROGATE
    return rf"\x{byte:02x}" if _FIRST_BYTE <= byte <= _LAST_BYTE else rf"\u{code:04x}"


def inside(roots: Sequence[Path], wanted: str | Path) -> Path:
    """Return the real path of `wanted` if it lies in one of `roots`, whether or not it exists.

    A text may be a path that is `spelt`, unless something lies in a root that is called so itself. Links are
    followed first and paths are compared part by part afterwards, so that neither `..`, nor
    a link that leads out, nor a sibling such as `/data-old` beside `/data` gets by.

    Raises:
        PathOutsideRootsError: it leads elsewhere, or is no path at all; the error is the same for what
            exists outside and what does not.
    """
    if isinstance(wanted, str) and (meant := unspelt(wanted)) != wanted:
        with suppress(PathOutsideRootsError):
            if os.path.lexists(as_it_is := _inside(roots, wanted)):
                return as_it_is
        wanted = meant
    return _inside(roots, wanted)


def _inside(roots: Sequence[Path], wanted: str | Path) -> Path:
    try:
        real = Path(wanted).resolve()
        # Behind a loop of links, resolve() gives up and leaves the links that follow as they are.
        resolved = not any(part.is_symlink() for part in (real, *real.parents))
    except (OSError, ValueError, RuntimeError) as exc:
        raise PathOutsideRootsError(Message.of("paths.unusable"), hint=_HINT) from exc
    if resolved and any(real.is_relative_to(root.resolve()) for root in roots):
        return real
    raise PathOutsideRootsError(Message.of("paths.outside"), hint=_HINT)


def natural(name: str) -> list[tuple[bool, int, str]]:
    """Return what sorts names as people do: step10 after step9, upper and lower case alike."""
    parts = re.split(r"([0-9]+)", name.lower())
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]
