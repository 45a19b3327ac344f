"""An upload as scripts see it: what has arrived, how far it is unpacked, and which dump came of it."""

from pathlib import Path
from typing import Any

from firstdrift.errors import LimitError
from firstdrift_server.context import Context
from firstdrift_server.questions.dumps import dump_in
from firstdrift_server.uploads.store import Upload


def upload_view(context: Context, upload: Upload) -> dict[str, Any]:
    """Describe an upload; its files are listed as long as some of them may be missing."""
    uploads = context.uploads
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
        "dump": dump_view(context, Path(upload.landed)) if is_done and upload.landed is not None else None,
    }


def dump_view(context: Context, landed: Path) -> dict[str, Any]:
    """Say which dump lies in a folder that was uploaded, as `dump_in` does; it spoils no page."""
    try:
        return context.ask(dump_in, landed)
    except LimitError as error:
        return {"path": str(landed), "format": None, "evidence": (error.message,), "holds": []}
