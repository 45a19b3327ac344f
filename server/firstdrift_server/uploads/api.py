"""/api/v1/uploads: dumps that come from the visitor's machine, in chunks that can be sent again.

POST /api/v1/uploads {"name": "run1.tar.gz", "files": [{"path": "run1.tar.gz", "size": 123456789}]}  ─▶  id
PUT  /api/v1/uploads/{id}/files/0?offset=0            raw bytes; the answer says how many there are now
GET  /api/v1/uploads/{id}                             what has arrived: go on there after a broken connection
POST /api/v1/uploads/{id}/complete                    unpacks it; answers with path and format of the dump
"""

from http import HTTPStatus
from typing import Annotated

from fastapi import Path, Query, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from firstdrift_server.answers import api_router
from firstdrift_server.context import Shared
from firstdrift_server.strict_json import StrictJSONResponse
from firstdrift_server.uploads.records import UploadFile
from firstdrift_server.uploads.store import MOST_FILES
from firstdrift_server.uploads.view import upload_view
from firstdrift_server.validation import Sent

router = api_router(
    "/uploads",
    "uploads",
    s409="Something else has arrived than was thought; ask what",
    s507="There is no room",
)

Size = Annotated[int, Field(ge=0, le=1 << 50)]


class FileIn(Sent):
    """A file to be uploaded: its path inside the upload, and its size in bytes."""

    path: Annotated[str, Field(max_length=4096)]
    size: Size


class UploadIn(Sent):
    """What is going to be uploaded: one archive, or the files of one folder."""

    name: Annotated[str, Field(max_length=255)] = ""
    files: Annotated[tuple[FileIn, ...], Field(min_length=1, max_length=MOST_FILES)]


@router.post("", status_code=HTTPStatus.CREATED)
def begin(wanted: UploadIn, context: Shared) -> StrictJSONResponse:
    """Announce an upload: one archive (zip, tar, tar.gz, tar.xz, tar.bz2), or the files of a folder."""
    files = [UploadFile(file.path, file.size) for file in wanted.files]
    name = wanted.name or files[0].path.partition("/")[0]
    upload = context.uploads.begin(name, files, member=context.member)
    context.about("path", name)
    headers = {"location": f"/api/v1/uploads/{upload.id}"}
    return StrictJSONResponse(upload_view(context, upload), HTTPStatus.CREATED, headers)


@router.delete("/dumps/{name}")
def remove(name: str, context: Shared) -> StrictJSONResponse:
    """Move a dump that was uploaded to the bin, where it is kept for some days."""
    context.uploads.remove(name)
    return StrictJSONResponse({"ok": True, "name": name})


@router.post("/dumps/{name}/restore")
def restore(name: str, context: Shared) -> StrictJSONResponse:
    """Take a dump that was uploaded back from the bin."""
    context.uploads.restore(name)
    return StrictJSONResponse({"ok": True, "name": name})


@router.get("/{upload}")
def show(upload: str, context: Shared) -> StrictJSONResponse:
    """Say what has arrived of an upload, how far it is unpacked, and what came of it."""
    return StrictJSONResponse(upload_view(context, context.uploads.get(upload)))


@router.put("/{upload}/files/{number}")
async def put(
    request: Request,
    upload: str,
    number: Annotated[int, Path(ge=0, le=MOST_FILES)],
    context: Shared,
    offset: Annotated[int, Query(ge=0, le=1 << 50)] = 0,
) -> Response:
    """Take a chunk of a file, of up to 16 MiB; it must begin where the file ends so far."""
    try:
        data = await request.body()
    except ClientDisconnect:
        return Response(status_code=HTTPStatus.BAD_REQUEST)  # nobody is there to read it
    arrived = await run_in_threadpool(context.uploads.write, upload, number, offset, data)
    return StrictJSONResponse({"ok": True, "arrived": arrived})


@router.post("/{upload}/complete")
def complete(upload: str, context: Shared) -> StrictJSONResponse:
    """Put an upload that has arrived whole in its place, unpacked, and say which dump it is."""
    context.uploads.finish(upload, member=context.member)
    return show(upload, context)


@router.delete("/{upload}")
def cancel(upload: str, context: Shared) -> StrictJSONResponse:
    """Throw away what has arrived of an upload; a dump that has arrived whole stays."""
    context.uploads.cancel(upload)
    return StrictJSONResponse({"ok": True, "id": upload})
