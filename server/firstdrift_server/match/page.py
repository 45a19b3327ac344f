"""/c/{id}/s/{slice}/match: match nodes by hand, look before, undo, and see what others do.

Everything on it can be done with forms alone; a script gets the same answers as data.
Its view needs NumPy, which the server is ready without.
"""

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

from fastapi import APIRouter, Request
from sqlalchemy.orm import Session
from starlette.datastructures import QueryParams
from starlette.responses import RedirectResponse, Response

from firstdrift.catalogue.comparisons.slice_pairs import get_slice_label
from firstdrift.catalogue.matches.match_sets import (
    MatchSet,
    add_edits,
    create_match_set,
    delete_match_set,
    get_match_set,
    laid_over,
    list_match_sets,
    redo,
    rename_match_set,
    restore_match_set,
    undo,
)
from firstdrift.errors import ConflictError, SettingsError
from firstdrift.matching.manual.edits import EditKind
from firstdrift.wording.message import Message
from firstdrift_frontend.rendering import render
from firstdrift_server.answers import answer, language_of, status_of, wants_json
from firstdrift_server.context import Context, Shared
from firstdrift_server.forms import Form
from firstdrift_server.match.sets import check, check_for, matches_in, set_of
from firstdrift_server.parts.addresses import match_address
from firstdrift_server.strict_json import StrictJSONResponse

if TYPE_CHECKING:
    from firstdrift_server.match.picking import Picking

    Changing = Callable[[Context, int, int, Picking, QueryParams], Picking]

router = APIRouter(include_in_schema=False)

Part = Literal["rows", "state", "picked", "effect", "suggestions"]
Change = Literal["edit", "undo", "redo", "begin", "rename", "delete", "restore", "import"]


@router.get("/c/{comparison}/s/{position}/match")
def show(request: Request, comparison: int, position: int, context: Shared) -> Response:
    """Show both sides; `golden` and `target` pick nodes, `set` chooses a match set.

    With `preview` what a match of the picked nodes would change is shown as well, with `suggest` who may be
    their partners. The page of results of a match set is that of the comparison it is laid over.
    """
    from firstdrift_server.match.picking import Picking

    picking = Picking.read(request.query_params)
    with context.reading() as session:
        origin = laid_over(session, comparison)
        if origin is not None:
            query = _with_set(picking, origin.id).query()
            address = f"{match_address(origin.comparison_id, position)}?{query}"
            return RedirectResponse(address, HTTPStatus.SEE_OTHER)
        view = _view(session, context, comparison, position, picking, request.query_params)
    return answer(request, "match.html", view)


@router.get("/c/{comparison}/s/{position}/match/{part}")
def show_part(request: Request, comparison: int, position: int, part: Part, context: Shared) -> Response:
    """Give a part of the page, for a page that is open: rows, the version in force, what is picked, ..."""
    from firstdrift_server.match.picking import Picking

    picking = Picking.read(request.query_params)
    with context.reading() as session:
        known = set_of(session, comparison, picking.match_set)
        found = _PARTS[part](request, session, context, known, position, picking)
    return StrictJSONResponse(found)


@router.post("/c/{comparison}/s/{position}/match/{change}")
def apply(
    request: Request, comparison: int, position: int, change: Change, fields: Form, context: Shared
) -> Response:
    """Change a match set, and lead back to the page; if it cannot be, nothing that is picked is lost."""
    from firstdrift_server.match.picking import Picking

    picking = Picking.read(fields)
    try:
        after = _CHANGES[change](context, comparison, position, picking, fields)
    except (ConflictError, SettingsError) as error:
        if wants_json(request):
            raise
        with context.reading() as session:
            view = _view(session, context, comparison, position, picking, fields)
        view["problem"] = {"error": error.message, "hint": error.advice}
        return answer(request, "match.html", view, status_of(error))
    if wants_json(request):
        with context.reading() as session:
            version = get_match_set(session, after.match_set).version if after.match_set else 0
        return StrictJSONResponse({"ok": True, "set": after.match_set, "version": version})
    query = after.query()
    if change == "delete":
        query = f"{query}&deleted={picking.match_set}" if query else f"deleted={picking.match_set}"
    address = match_address(comparison, position)
    return RedirectResponse(f"{address}?{query}" if query else address, HTTPStatus.SEE_OTHER)


def _view(
    session: Session,
    context: Context,
    comparison: int,
    position: int,
    picking: "Picking",
    parameters: QueryParams,
) -> dict[str, Any]:
    from firstdrift_server.match.view import match_view, ranked_view, trial_view
    from firstdrift_server.tree.state import read_number

    view = match_view(session, context, comparison, position, picking)
    known = set_of(session, comparison, picking.match_set)
    if parameters.get("preview") and view["picked"].is_ready:
        view["effect"] = trial_view(session, context, known, position, picking)
    if parameters.get("suggest") and picking.has_any:
        view["suggestions"] = ranked_view(session, context, known, position, picking)
    deleted = read_number(parameters.get("deleted"), "deleted")
    gone = list_match_sets(session, comparison, deleted=True) if deleted is not None else ()
    view["deleted"] = next(({"id": one.id, "name": one.name} for one in gone if one.id == deleted), None)
    return view


# ---- parts


def _rows(
    request: Request, session: Session, context: Context, known: MatchSet, position: int, picking: "Picking"
) -> dict[str, Any]:
    from firstdrift_server.match.panes import panes_of, rows_of_pane
    from firstdrift_server.match.picking import SIDES

    side = SIDES[request.query_params.get("side") == "target"]
    panes = panes_of(session, context, known, position)
    found = rows_of_pane(session, panes, side, picking, request.query_params)
    chunks = [
        (number, _html(request, "match_rows.html", rows=rows, pane=found)) for number, rows in found["chunks"]
    ]
    return found | {"version": known.version, "shown": panes.comparison, "chunks": chunks}


def _state(
    request: Request, session: Session, context: Context, known: MatchSet, position: int, picking: "Picking"
) -> dict[str, Any]:
    del context, picking
    from firstdrift_server.match.view import state_view
    from firstdrift_server.parts.workers import worker_view

    state = state_view(session, known, position)
    address = match_address(known.comparison_id, position)
    html = _html(request, "match_state.html", state=state, address=address, worker=worker_view(session))
    return {name: state[name] for name in ("version", "shown", "name")} | {"html": html}


def _picked(
    request: Request, session: Session, context: Context, known: MatchSet, position: int, picking: "Picking"
) -> dict[str, Any]:
    from firstdrift_server.match.panes import panes_of
    from firstdrift_server.match.view import picked_view

    picked = picked_view(session, panes_of(session, context, known, position), picking)
    html = _html(request, "match_picked.html", picked=picked, **_around(known, position, picking))
    return {"kind": picked.kind, "is_ready": picked.is_ready, "is_too_many": picked.is_too_many, "html": html}


def _effect(
    request: Request, session: Session, context: Context, known: MatchSet, position: int, picking: "Picking"
) -> dict[str, Any]:
    from firstdrift_server.match.view import trial_view

    effect = trial_view(session, context, known, position, picking)
    html = _html(request, "match_effect.html", effect=effect)
    return {"version": known.version, "ok": effect["problem"] is None, "html": html}


def _suggestions(
    request: Request, session: Session, context: Context, known: MatchSet, position: int, picking: "Picking"
) -> dict[str, Any]:
    from firstdrift_server.match.view import ranked_view

    found = ranked_view(session, context, known, position, picking)
    html = _html(request, "match_suggestions.html", found=found, **_around(known, position, picking))
    return {"count": len(found["suggestions"]), "html": html}


_PARTS: dict[Part, Callable[..., dict[str, Any]]] = {
    "rows": _rows,
    "state": _state,
    "picked": _picked,
    "effect": _effect,
    "suggestions": _suggestions,
}


def _around(known: MatchSet, position: int, picking: "Picking") -> dict[str, Any]:
    address = match_address(known.comparison_id, position)
    return {"address": address, "view_query": picking.query(picks=False)}


def _html(request: Request, template: str, **context: Any) -> str:  # noqa: ANN401 (whatever a template shows)
    return render(template, language_of(request), **context)


# ---- changes


def _edit(
    context: Context, comparison: int, position: int, picking: "Picking", fields: QueryParams
) -> "Picking":
    from firstdrift_server.match.panes import panes_of
    from firstdrift_server.match.view import picked_view

    with context.reading() as session:
        known = set_of(session, comparison, picking.match_set)
        panes = panes_of(session, context, known, position)
        edits = (picking.edit(EditKind(picked_view(session, panes, picking).kind)),)
        if picking.match_set is None:
            check_for(session, context, known, edits)
        else:
            check(session, context, known.id, _seen(fields), edits)
    made = picking.match_set
    with context.writing() as session:
        if made is None:
            made = _begin_set(session, comparison, fields)
        add_edits(session, made, 0 if picking.match_set is None else _seen(fields), edits)
    return _with_set(picking, made, picks=False)


def _step(change: Callable[[Session, int, int], object]) -> "Changing":
    """Go a version back or on."""

    def step(
        context: Context, comparison: int, position: int, picking: "Picking", fields: QueryParams
    ) -> "Picking":
        del position
        with context.writing() as session:
            change(session, _chosen(session, comparison, picking), _seen(fields))
        return picking

    return step


def _begin(
    context: Context, comparison: int, position: int, picking: "Picking", fields: QueryParams
) -> "Picking":
    with context.writing() as session:
        get_slice_label(session, comparison, position)
        made = create_match_set(session, comparison, fields.get("name") or "")
    return _with_set(picking, made)


def _rename(
    context: Context, comparison: int, position: int, picking: "Picking", fields: QueryParams
) -> "Picking":
    del position
    with context.writing() as session:
        rename_match_set(session, _chosen(session, comparison, picking), fields.get("name") or "")
    return picking


def _delete(
    context: Context, comparison: int, position: int, picking: "Picking", fields: QueryParams
) -> "Picking":
    del position, fields
    with context.writing() as session:
        delete_match_set(session, _chosen(session, comparison, picking))
    return _with_set(picking, None)


def _restore(
    context: Context, comparison: int, position: int, picking: "Picking", fields: QueryParams
) -> "Picking":
    del position, fields
    with context.writing() as session:
        restored = restore_match_set(session, picking.match_set or 0)
        _chosen(session, comparison, picking)
    return _with_set(picking, restored.id)


def _import(
    context: Context, comparison: int, position: int, picking: "Picking", fields: QueryParams
) -> "Picking":
    del position
    # Forms send lines as networks once did.
    text = (fields.get("text") or "").replace("\r\n", "\n")
    read = matches_in(context, (fields.get("name") or "")[:200], text)
    made = picking.match_set
    with context.reading() as session:
        known = set_of(session, comparison, made)
        if made is None:
            check_for(session, context, known, read.edits, read.mappings)
        else:
            check(session, context, made, _seen(fields), read.edits, read.mappings)
    with context.writing() as session:
        if made is None:
            made = _begin_set(session, comparison, fields)
        add_edits(session, made, 0 if picking.match_set is None else _seen(fields), read.edits, read.mappings)
    return _with_set(picking, made)


_CHANGES: dict[Change, "Changing"] = {
    "edit": _edit,
    "undo": _step(undo),
    "redo": _step(redo),
    "begin": _begin,
    "rename": _rename,
    "delete": _delete,
    "restore": _restore,
    "import": _import,
}


def _seen(fields: QueryParams) -> int:
    """Return the version that whoever submits a form has seen."""
    from firstdrift_server.tree.state import read_number

    return read_number(fields.get("version"), "version") or 0


def _chosen(session: Session, comparison: int, picking: "Picking") -> int:
    if picking.match_set is None:
        raise SettingsError(
            Message.of("server.no_match_set_chosen"), hint=Message.of("server.choose_or_begin")
        )
    return set_of(session, comparison, picking.match_set).id


def _begin_set(session: Session, comparison: int, fields: QueryParams) -> int:
    """Begin a match set for whoever matches without having chosen one."""
    sets = [one for deleted in (False, True) for one in list_match_sets(session, comparison, deleted=deleted)]
    taken = {one.name for one in sets}
    wanted = (fields.get("new_name") or "").strip() or "Match set"
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted} ({number})"
    return create_match_set(session, comparison, name)


def _with_set(picking: "Picking", match_set: int | None, *, picks: bool = True) -> "Picking":
    kept = replace(picking, match_set=match_set)
    return kept if picks else replace(kept, golden=(), target=(), kind=None)
