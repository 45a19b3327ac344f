"""The files that pages link to, kept in memory under an address that changes with their content.

static/app.css  ─▶  /static/3f9a1c.../app.css   (cached for ever; a new release has a new address)
plotly.min.js   ─▶  /static/plotly-7.1.0/plotly.min.js
"""

import gzip
import hashlib
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from firstdrift_frontend import STATIC

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is sent."""

    media_type: str
    content: bytes
    zipped: bytes


@cache
def build() -> str:
    """Return a name for the content of all our files together."""
    digest = hashlib.sha256()
    for file in _files():
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


@cache
def plotly_build() -> str:
    """Return a name for the version of plotly that is installed."""
    return f"plotly-{importlib.metadata.version('plotly')}"


@cache
def asset(folder: str, name: str) -> Asset | None:
    """Return the file at /static/{folder}/{name}, or None if there is none of that name and version."""
    if (folder, name) == (plotly_build(), "plotly.min.js"):
        return _load(_plotly_file())
    known = {file.name: file for file in _files()} if folder == build() else {}
    return _load(known[name]) if name in known else None


def _files() -> list[Path]:
    return sorted(file for file in STATIC.iterdir() if file.suffix in MEDIA_TYPES)


def _plotly_file() -> Path:
    """Find the script inside the Python package without importing that package, which takes seconds."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the plotly package is not installed")
    return Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"


def _load(file: Path) -> Asset:
    content = file.read_bytes()
    # mtime=0: the same file gives the same bytes in every process.
    return Asset(MEDIA_TYPES[file.suffix], content, gzip.compress(content, compresslevel=6, mtime=0))
