"""An upload as scripts see it: what has arrived, how far it is unpacked, and which dump came of it."""

from pathlib import Path
from typing import Any

from firstdrift.errors import LimitError
from firstdrift.groups import fields_of
from firstdrift_server.context import Context
from firstdrift_server.questions.dumps import dump_in
from firstdrift_server.uploads.records import Upload


def upload_view(context: Context, upload: Upload) -> dict[str, Any]:
    """Describe an upload; its files are listed as long as some of them may be missing."""
    uploads = context.uploads
    unpacking = uploads.unpacking(upload.id)
    state = "unpacking" if unpacking else "receiving" if upload.landed is None else "done"
    is_coming = state == "receiving"
    files: list[dict[str, Any]] = [
        {"path": file.path, "size": file.size, "arrived": uploads.arrived(upload, number)}
        for number, file in enumerate(upload.files)
        if is_coming
    ]
    return {
        "id": upload.id,
        "name": upload.name,
        "state": state,
        "size": upload.size,
        "arrived": sum(file["arrived"] for file in files) if is_coming else upload.size,
        "files": files,
        "unpacked": unpacking and fields_of(unpacking, ("files", "size", "share")),
        "dump": None if upload.landed is None else dump_view(context, Path(upload.landed)),
    }


def dump_view(context: Context, landed: Path) -> dict[str, Any]:
    """Say which dump lies in a folder that was uploaded, as `dump_in` does; it spoils no page."""
    try:
        return context.ask(dump_in, landed)
    except LimitError as error:
        return {"path": str(landed), "format": None, "evidence": (), "holds": [], "problem": error.message}
