"""Turn a path that came from a client into a file inside an allowed root, or refuse.

inside([/data], "/data/run/step0")      ─▶  /data/run/step0
inside([/data], "/data/../etc/passwd")  ─▶  PathOutsideRootsError
inside([/data], "/data/link-to-etc")    ─▶  PathOutsideRootsError
"""

from collections.abc import Sequence
from pathlib import Path

from firstdrift.errors import PathOutsideRootsError

_HINT = "Choose a folder below one of the directories the server was started with"


def inside(roots: Sequence[Path], wanted: str | Path) -> Path:
    """Return the real path of `wanted` if it lies in one of `roots`, whether or not it exists.

    Links are followed first and paths are compared part by part afterwards, so that neither `..`, nor
    a link that leads out, nor a sibling such as `/data-old` beside `/data` gets by.

    Raises:
        PathOutsideRootsError: it leads elsewhere, or is no path at all; the error is the same for what
            exists outside and what does not.
    """
    try:
        real = Path(wanted).resolve()
        # Behind a loop of links, resolve() gives up and leaves the links that follow as they are.
        resolved = not any(part.is_symlink() for part in (real, *real.parents))
    except (OSError, ValueError, RuntimeError) as exc:
        raise PathOutsideRootsError("this is not a usable path", hint=_HINT) from exc
    if resolved and any(real.is_relative_to(root.resolve()) for root in roots):
        return real
    raise PathOutsideRootsError("this path is outside the directories that may be read", hint=_HINT)
