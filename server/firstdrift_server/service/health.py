"""GET /health, /ready and /version: for probes and for people who ask which version this is."""

import sqlite3
from http import HTTPStatus
from importlib.metadata import version

from fastapi import APIRouter
from pydantic import BaseModel

from firstdrift.catalogue.engine import sqlite_warning
from firstdrift.errors import CatalogueError
from firstdrift_server.context import Shared
from firstdrift_server.parts.summary import worker_view
from firstdrift_server.strict_json import StrictJSONResponse

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """The process answers."""

    ok: bool = True


@router.get("/health")
async def health() -> Health:
    """Say that the process is alive, whatever the state of the database."""
    return Health()


@router.get("/ready")
def ready(context: Shared) -> StrictJSONResponse:
    """Say whether comparisons can be shown and made: the database answers, and a worker is alive."""
    try:
        with context.reading() as session:
            has_worker, has_database = bool(worker_view(session).alive), True
    except CatalogueError:
        has_worker = has_database = False
    status = HTTPStatus.OK if has_worker and has_database else HTTPStatus.SERVICE_UNAVAILABLE
    said = {"ok": status == HTTPStatus.OK, "database": has_database, "worker": has_worker}
    return StrictJSONResponse(said, status)


@router.get("/version")
def say_version(context: Shared) -> StrictJSONResponse:
    """Say which release of firstdrift this is, and what is to be known of its database."""
    return StrictJSONResponse(
        {
            "version": version("firstdrift"),
            "database": context.engine.dialect.name,
            "sqlite": sqlite3.sqlite_version,
            "warning": sqlite_warning(context.engine),
        }
    )
