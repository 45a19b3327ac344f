"""GET /metrics: how the server is doing, for Prometheus.

What this process has answered is counted in it; what comes from the database is read when it is asked for.
The client library is loaded then, too: the server is ready without.
"""

from fastapi import APIRouter
from starlette.responses import Response

from firstdrift_server.context import Shared

router = APIRouter(tags=["health"])


@router.get("/metrics", response_class=Response)
def metrics(context: Shared) -> Response:
    """Give requests, jobs, workers, sizes and this process in the text format of Prometheus."""
    from firstdrift_server.service.exposition import CONTENT_TYPE, exposition

    return Response(exposition(context), media_type=CONTENT_TYPE)
