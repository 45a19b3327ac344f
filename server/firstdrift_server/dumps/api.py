"""/api/v1/dumps: have a dump read without comparing it, and what it is."""

from http import HTTPStatus

from firstdrift.catalogue.dumps.jobs import read_dump_later
from firstdrift_server.answers import api_router
from firstdrift_server.context import Shared
from firstdrift_server.dumps.view import dump_view, path_view
from firstdrift_server.parts.growth import set_followed
from firstdrift_server.questions.dumps import real_dump
from firstdrift_server.strict_json import StrictJSONResponse
from firstdrift_server.validation import PathText, Sent

router = api_router("/dumps", "dumps")


class Reading(Sent):
    """Which dump is to be read.

    Attributes:
        computes: also compute the statistics of tensors that were saved without them.
    """

    path: PathText
    computes: bool = False


class Following(Sent):
    """Which dump is to be looked at again by itself; with `stops`, no more."""

    path: PathText
    stops: bool = False


@router.get("")
def at_path(path: str, context: Shared) -> StrictJSONResponse:
    """Say what lies at a path: its id if it was read, and how far reading it is."""
    return StrictJSONResponse(context.read(path_view, context, path))


@router.post("", status_code=HTTPStatus.ACCEPTED)
def read(reading: Reading, context: Shared) -> StrictJSONResponse:
    """Have a dump read; a worker begins at once."""
    path = context.ask(real_dump, context.roots, reading.path)
    context.about("path", path)
    context.write(read_dump_later, path, computes=reading.computes)
    with context.reading() as session:
        return StrictJSONResponse(path_view(session, context, str(path)), HTTPStatus.ACCEPTED)


@router.post("/follow")
def follow(following: Following, context: Shared) -> StrictJSONResponse:
    """Look at a dump again by itself while it grows, or no more."""
    path = context.ask(real_dump, context.roots, following.path)
    context.about("path", path)
    context.write(set_followed, [path], stops=following.stops)
    return at_path(str(path), context)


@router.get("/{dump:int}")
def show(dump: int, context: Shared, *, check: bool = False) -> StrictJSONResponse:
    """Say what a dump is and what lies in it; with `check`, whether it has changed since it was read."""
    return StrictJSONResponse(context.read(dump_view, context, dump, check=check))
