"""/api/v1/match-sets: match nodes by hand, look before, undo and redo, read and write mapping files.

Whoever changes what a set decides says which version they saw; 409 says what somebody else has changed since.
Results are those of a comparison of their own, which `results` names: ask for it as for any other.
"""

from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Depends, HTTPException, Query, Request
from msgspec import Meta, Struct
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from firstdrift.catalogue.matches.match_sets import (
    add_edits,
    create_match_set,
    delete_match_set,
    get_match_set,
    list_match_sets,
    redo,
    rename_match_set,
    restore_match_set,
    undo,
)
from firstdrift.matching.manual.edits import Edit, EditKind, checked
from firstdrift.paths import encodable
from firstdrift.wording.message import verbatim
from firstdrift_server.answers import api_router, described_file
from firstdrift_server.context import Shared
from firstdrift_server.match.sets import (
    Format,
    as_file,
    check,
    effect_view,
    match_set_view,
    matches_in,
    suggestions_view,
)
from firstdrift_server.strict_json import StrictJSONResponse
from firstdrift_server.validation import Sent

router = api_router("", "match sets", s409="Somebody else has changed it meanwhile")

VersionNumber = Annotated[int, Field(ge=0, le=10**9)]
Names = Annotated[tuple[str, ...], Field(max_length=1000)]


class EditIn(Sent):
    """Nodes that are matched, or whose match is taken apart; with `descendants` also what is inside."""

    kind: Literal["match", "unmatch"]
    golden: Names = ()
    target: Names = ()
    descendants: bool = True

    def edit(self) -> Edit:
        """Give the edit."""
        return checked(Edit(EditKind(self.kind), self.golden, self.target, self.descendants))


Edits = Annotated[tuple[EditIn, ...], Field(min_length=1, max_length=1000)]


class Named(Sent):
    """The name of a match set."""

    name: str


class Seen(Sent):
    """The version that whoever asks has seen."""

    version: VersionNumber


class Change(Seen):
    """Edits to be laid over the version in force, undone as one."""

    edits: Edits


class Import(Struct, frozen=True, forbid_unknown_fields=True):
    """The text of a mapping file, or of a match set, to be laid over the version in force."""

    version: Annotated[int, Meta(ge=0, le=10**9)]
    text: str
    name: Annotated[str, Meta(max_length=200)] = "imported"


_DECODER = msgspec.json.Decoder(Import)


async def _import_from(request: Request) -> Import:
    """Read the body as far as it makes sense, while others are answered: it may hold 50 MB."""
    body = await request.body()
    try:
        return await run_in_threadpool(_DECODER.decode, body)
    except msgspec.DecodeError as error:
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, verbatim(str(error))) from error


_IMPORT_SCHEMA: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": msgspec.json.schema_components([Import])[1]["Import"]}},
    }
}


class Trial(Sent):
    """Edits to be tried, over a match set or over the comparison as it was found."""

    edits: Edits
    match_set: int | None = None
    slice: VersionNumber = 0


@router.get("/comparisons/{comparison}/match-sets")
def list_all(comparison: int, context: Shared, *, deleted: bool = False) -> StrictJSONResponse:
    """List the match sets of a comparison, the oldest first; with `deleted` those that can be restored."""
    with context.reading() as session:
        known = list_match_sets(session, comparison, deleted=deleted)
        return StrictJSONResponse({"match_sets": [match_set_view(session, one) for one in known]})


@router.post("/comparisons/{comparison}/match-sets", status_code=HTTPStatus.CREATED)
def create(comparison: int, named: Named, context: Shared) -> StrictJSONResponse:
    """Begin a match set; nothing is decided in it yet."""
    with context.writing() as session:
        made = create_match_set(session, comparison, named.name)
        context.about("match_set", made)
    headers = {"location": f"/api/v1/match-sets/{made}"}
    with context.reading() as session:
        known = match_set_view(session, get_match_set(session, made))
    return StrictJSONResponse(known, HTTPStatus.CREATED, headers)


@router.post("/comparisons/{comparison}/preview")
def preview(comparison: int, trial: Trial, context: Shared) -> StrictJSONResponse:
    """Say what edits would change: matches, counts, and the first bad node; nothing is written."""
    edits = tuple(one.edit() for one in trial.edits)
    with context.reading() as session:
        asked = (comparison, trial.match_set, trial.slice)
        return StrictJSONResponse(effect_view(session, context, asked, edits))


@router.get("/comparisons/{comparison}/suggestions")
def suggestions(
    comparison: int,
    context: Shared,
    *,
    match_set: int | None = None,
    position: Annotated[int, Query(alias="slice", ge=0)] = 0,
    golden: str | None = None,
    target: str | None = None,
) -> StrictJSONResponse:
    """Rank the partners that a golden or a target node may have, each with a score and reasons."""
    with context.reading() as session:
        asked = (comparison, match_set, position)
        names = {"golden": golden, "target": target}
        return StrictJSONResponse(suggestions_view(session, context, asked, names))


@router.get("/match-sets/{match_set}")
def show(match_set: int, context: Shared) -> StrictJSONResponse:
    """Give a match set: the version in force, its edits, its results, and all its versions."""
    with context.reading() as session:
        return StrictJSONResponse(match_set_view(session, get_match_set(session, match_set)))


@router.post("/match-sets/{match_set}/rename")
def rename(match_set: int, named: Named, context: Shared) -> StrictJSONResponse:
    """Give a match set another name."""
    context.write(rename_match_set, match_set, named.name)
    return _shown(match_set, context)


@router.delete("/match-sets/{match_set}")
def delete(match_set: int, context: Shared) -> StrictJSONResponse:
    """Delete a match set with the results of all its versions; it can be restored for a month."""
    context.write(delete_match_set, match_set)
    return StrictJSONResponse({"ok": True, "id": match_set})


@router.post("/match-sets/{match_set}/restore")
def restore(match_set: int, context: Shared) -> StrictJSONResponse:
    """Take a deleted match set back as it was; a worker makes the results of the version in force again."""
    context.write(restore_match_set, match_set)
    return _shown(match_set, context)


@router.post("/match-sets/{match_set}/edits", status_code=HTTPStatus.CREATED)
def change(match_set: int, wanted: Change, context: Shared) -> StrictJSONResponse:
    """Match nodes, or take matches apart; a worker makes the results at once."""
    edits = tuple(one.edit() for one in wanted.edits)
    context.read(check, context, match_set, wanted.version, edits)
    context.write(add_edits, match_set, wanted.version, edits)
    return _shown(match_set, context, HTTPStatus.CREATED)


@router.post("/match-sets/{match_set}/undo")
def go_back(match_set: int, seen: Seen, context: Shared) -> StrictJSONResponse:
    """Go back to the version before; its results are there."""
    context.write(undo, match_set, seen.version)
    return _shown(match_set, context)


@router.post("/match-sets/{match_set}/redo")
def go_on(match_set: int, seen: Seen, context: Shared) -> StrictJSONResponse:
    """Go on to the version that was undone."""
    context.write(redo, match_set, seen.version)
    return _shown(match_set, context)


@router.post("/match-sets/{match_set}/import", status_code=HTTPStatus.CREATED, openapi_extra=_IMPORT_SCHEMA)
def read_in(
    match_set: int, wanted: Annotated[Import, Depends(_import_from)], context: Shared
) -> StrictJSONResponse:
    """Read in a mapping file of msprobe or msit, or an exported match set."""
    read = matches_in(context, wanted.name, wanted.text)
    context.read(check, context, match_set, wanted.version, read.edits, read.mappings)
    context.write(add_edits, match_set, wanted.version, read.edits, read.mappings)
    return _shown(match_set, context, HTTPStatus.CREATED)


@router.get(
    "/match-sets/{match_set}/export",
    response_class=Response,
    responses=described_file("application/json", "application/yaml"),
)
def write_out(
    match_set: int,
    context: Shared,
    *,
    written: Annotated[Format, Query(alias="format")] = Format.JSON,
    version: VersionNumber | None = None,
) -> Response:
    """Write a version, the one in force unless told, as a match set or as a mapping file of msprobe."""
    with context.reading() as session:
        file = as_file(session, get_match_set(session, match_set), written, version)
    headers = {"content-disposition": f'attachment; filename="{file.name}"'}
    return Response(encodable(file.text).encode(), 200, headers, media_type=file.media_type)


def _shown(match_set: int, context: Shared, status: int = HTTPStatus.OK) -> StrictJSONResponse:
    with context.reading() as session:
        return StrictJSONResponse(match_set_view(session, get_match_set(session, match_set)), status)
