"""GET /health, /ready and /version: for probes and for people who ask which version this is."""

import sqlite3
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path

from fastapi import APIRouter
from pydantic import BaseModel

from firstdrift.catalogue.engine import sqlite_warning
from firstdrift.catalogue.jobs.waiting import standing
from firstdrift.catalogue.migrate import HEAD, step_of
from firstdrift.catalogue.sizes import LEAST_FREE, free_bytes, is_writable
from firstdrift.errors import CatalogueError
from firstdrift_server.context import Context, Shared
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
    """Say whether comparisons can be shown and made; 503 unless all of it is true.

    `database`: it answers; `schema`: its tables are those of this version; `worker`: one is alive; `working`:
    what is to be done is taken; `writable`: so is the data directory; `room`: so much of its disk is left
    that jobs can write.
    """
    said = _of_database(context) | _of_disk(context.settings.data_dir)
    is_ready = all(said.values())
    status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
    return StrictJSONResponse({"ok": is_ready, **said}, status)


def _of_database(context: Context) -> dict[str, bool]:
    try:
        with context.reading() as session:
            jobs, step = standing(session), step_of(session)
    except CatalogueError:
        return dict.fromkeys(("database", "schema", "worker", "working"), False)
    return {
        "database": True,
        "schema": step == HEAD,
        "worker": bool(jobs.workers),
        "working": not jobs.is_stuck,
    }


def _of_disk(folder: Path) -> dict[str, bool]:
    return {"writable": is_writable(folder), "room": free_bytes(folder) >= LEAST_FREE}


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
