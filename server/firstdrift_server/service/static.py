"""GET /static/{folder}/{name}: styles, scripts and Plotly, cached for ever under their version."""

from fastapi import APIRouter, HTTPException, Request
from starlette.responses import Response

from firstdrift.wording.message import Message
from firstdrift_frontend.assets import asset

router = APIRouter(include_in_schema=False)


@router.get("/static/{folder}/{name:path}")
def static_file(request: Request, folder: str, name: str) -> Response:
    """Send a file, compressed where the browser takes it."""
    found = asset(folder, name)
    if found is None:
        raise HTTPException(404, Message.of("server.no_static_file"))
    zipped = "gzip" in request.headers.get("accept-encoding", "")
    headers = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
    if zipped:
        headers["content-encoding"] = "gzip"
    return Response(found.zipped if zipped else found.content, headers=headers, media_type=found.media_type)
