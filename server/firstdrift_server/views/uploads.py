"""An upload as scripts see it: what has arrived, how far it is unpacked, and which dump came of it."""

from pathlib import Path
from typing import Any

from firstdrift.dumps.detect import dumps_below, recognise
from firstdrift_server.uploads.store import Upload, Uploads

DEEPEST = 3
"""So many folders that hold nothing but one folder are opened to find the dump."""


def upload_view(uploads: Uploads, upload: Upload) -> dict[str, Any]:
    """Describe an upload; its files are listed as long as some of them may be missing."""
    unpacking = uploads.unpacking(upload.id)
    is_done = upload.landed is not None
    state = "unpacking" if unpacking else "done" if is_done else "receiving"
    arrived = (
        [uploads.arrived(upload, number) for number in range(len(upload.files))]
        if state == "receiving"
        else []
    )
    return {
        "id": upload.id,
        "name": upload.name,
        "state": state,
        "size": upload.size,
        "arrived": sum(arrived) if state == "receiving" else upload.size,
        "files": [
            {"path": file.path, "size": file.size, "arrived": there}
            for file, there in zip(upload.files, arrived, strict=False)
        ],
        "unpacked": {"files": unpacking.files, "size": unpacking.size, "share": unpacking.share}
        if unpacking
        else None,
        "dump": dump_view(Path(upload.landed)) if is_done and upload.landed is not None else None,
    }


def dump_view(landed: Path) -> dict[str, Any]:
    """Say which dump lies in a folder, or alone in it; without one its format is null.

    `holds` names the dumps below a folder that holds several: one of them is to be chosen. Where that is
    empty too, there is no dump in it.
    """
    folder, found = landed, recognise(landed)
    for _ in range(DEEPEST):
        if found is not None:
            break
        inner = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
        if len(inner) != 1:
            break
        folder = inner[0]
        found = recognise(folder)
    below = dumps_below(landed) if found is None else []
    if len(below) == 1 and (found := recognise(below[0])):
        folder = below[0]
    dump_format, evidence = found or (None, ())
    return {
        "path": str(folder if found else landed),
        "format": dump_format,
        "evidence": evidence,
        "holds": [] if found else [str(one.relative_to(landed)) for one in below],
    }
