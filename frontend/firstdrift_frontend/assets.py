"""The files that pages link to, kept in memory under an address that changes with their content.

static/app.css        ─▶  /static/3f9a1c.../app.css        (cached for ever; a new release has a new address)
static/lib/http.js    ─▶  /static/3f9a1c.../lib/http.js
plotly.min.js         ─▶  /static/plotly-7.1.0/plotly.min.js
"""

import gzip
import hashlib
import importlib.metadata
import importlib.util
import posixpath
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from firstdrift.groups import not_in
from firstdrift_frontend import STATIC

VENDOR = "vendor"
"""Where files of others lie, which are sent as they are: their licence may stand in a comment."""

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
    for name, file in _files().items():
        digest.update(name.encode() + b"\0" + file.read_bytes())
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
    file = _files().get(name) if folder == build() else None
    return _load(file) if file else None


@cache
def modules(script: str) -> tuple[str, ...]:
    """Return the names of a script and of all modules that it imports: browsers can fetch them at once."""
    needed = [script]
    for name in needed:
        found = _IMPORT.findall(_files()[name].read_text("utf-8"))
        paths = (posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) for path in found)
        needed += not_in(dict.fromkeys(paths), needed)
    return tuple(needed)


_IMPORT = re.compile(r'^(?:import|export)\b(?:[^";]*\bfrom)?\s*"(\.[^"]+)";', re.MULTILINE)


@cache
def _files() -> dict[str, Path]:
    # What is asked for is looked up among these names: no path is ever made of an address.
    files = sorted(file for file in STATIC.rglob("*") if file.suffix in MEDIA_TYPES)
    return {file.relative_to(STATIC).as_posix(): file for file in files}


def _plotly_file() -> Path:
    """Find the script inside the Python package without importing that package, which takes seconds."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the plotly package is not installed")
    return Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"


def _load(file: Path) -> Asset:
    content = file.read_bytes()
    if file.is_relative_to(STATIC) and not file.is_relative_to(STATIC / VENDOR):
        content = _COMMENT.sub(lambda comment: b"\n" * comment[0].count(b"\n"), content)
    # mtime=0: the same file gives the same bytes in every process.
    return Asset(MEDIA_TYPES[file.suffix], content, gzip.compress(content, compresslevel=6, mtime=0))


_COMMENT = re.compile(rb"/\*.*?\*/[ ]?|^[ ]*//[^\n]*", re.DOTALL | re.MULTILINE)
"""What is for readers of our sources, a third of their bytes: not sent, but lines keep their numbers."""
