"""/c/{id}/s/{slice}/match: match nodes by hand, look before, undo, and see what others do.

Everything on it can be done with forms alone; a script gets the same answers as data.
Its view needs NumPy, which the server is ready without.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

from fastapi import APIRouter, Request
from msgspec.structs import asdict, replace
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
from firstdrift.groups import fields_of
from firstdrift.matching.manual.edits import Edit
from firstdrift.matching.manual.mapping import MappingFile
from firstdrift.wording.message import Message
from firstdrift_frontend.rendering import render
from firstdrift_server.answers import answer, status_of, wants_json
from firstdrift_server.context import Context, Shared
from firstdrift_server.forms import Form
from firstdrift_server.match.sets import begin_set, check, check_for, matches_in, set_of
from firstdrift_server.parts.addresses import match_address, with_query
from firstdrift_server.parts.refusal import refusal
from firstdrift_server.reader_language import language_of
from firstdrift_server.strict_json import StrictJSONResponse
from firstdrift_server.validation import read_number

if TYPE_CHECKING:
    from firstdrift_server.match.panes import Panes
    from firstdrift_server.match.picking import Picking
    from firstdrift_server.match.view import MatchView

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
            there = match_address(origin.comparison_id, position)
            query = _with_set(picking, origin.id).query()
            return RedirectResponse(with_query(there, query), HTTPStatus.SEE_OTHER)
        view = _view(session, context, comparison, position, picking, request.query_params)
    return answer(request, "match.html", view)


@router.get("/c/{comparison}/s/{position}/match/{part}")
def show_part(request: Request, comparison: int, position: int, part: Part, context: Shared) -> Response:
    """Give a part of the page, for a page that is open: rows, the version in force, what is picked, ..."""
    from firstdrift_server.match.picking import Picking

    picking = Picking.read(request.query_params)
    with context.reading() as session:
        known = set_of(session, comparison, picking.match_set)
        found = _PARTS[part](_Seen(request, session, context, known, position, picking))
    return StrictJSONResponse(found)


@router.post("/c/{comparison}/s/{position}/match/{change}")
def apply(
    request: Request, comparison: int, position: int, change: Change, fields: Form, context: Shared
) -> Response:
    """Change a match set, and lead back to the page; if it cannot be, nothing that is picked is lost."""
    from firstdrift_server.match.picking import Picking

    picking = Picking.read(fields)
    try:
        after = _CHANGES[change](_Sent(context, comparison, position, picking, fields))
    except (ConflictError, SettingsError) as error:
        if wants_json(request):
            raise
        view = context.read(_view, context, comparison, position, picking, fields)
        return answer(request, "match.html", replace(view, problem=refusal(error)), status_of(error))
    if wants_json(request):
        with context.reading() as session:
            version = get_match_set(session, after.match_set).version if after.match_set else 0
        return StrictJSONResponse({"ok": True, "set": after.match_set, "version": version})
    deleted = f"deleted={picking.match_set}" if change == "delete" else ""
    query = "&".join(filter(None, (after.query(), deleted)))
    return RedirectResponse(with_query(match_address(comparison, position), query), HTTPStatus.SEE_OTHER)


def _view(
    session: Session,
    context: Context,
    comparison: int,
    position: int,
    picking: "Picking",
    parameters: QueryParams,
) -> "MatchView":
    from firstdrift_server.match.view import Deleted, match_view, ranked_view, trial_view

    view = match_view(session, context, comparison, position, picking)
    known = set_of(session, comparison, picking.match_set)
    previews, suggests = parameters.get("preview") and view.picked.is_ready, parameters.get("suggest")
    deleted = read_number(parameters.get("deleted"), "deleted")
    gone = list_match_sets(session, comparison, deleted=True) if deleted is not None else ()
    return replace(
        view,
        effect=trial_view(session, context, known, position, picking) if previews else None,
        suggestions=ranked_view(session, context, known, position, picking)
        if suggests and picking.has_any
        else None,
        deleted=next((Deleted(one.id, one.name) for one in gone if one.id == deleted), None),
    )


# ---- parts


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a part of the page is made of."""

    request: Request
    session: Session
    context: Context
    known: MatchSet
    position: int
    picking: "Picking"

    @property
    def address(self) -> str:
        return match_address(self.known.comparison_id, self.position)

    def panes(self) -> "Panes":
        from firstdrift_server.match.panes import panes_of

        return panes_of(self.session, self.context, self.known, self.position)

    def html(self, template: str, **context: Any) -> str:  # noqa: ANN401 (whatever a template shows)
        return render(template, language_of(self.request), **context)

    def html_with_picks(self, template: str, **context: Any) -> str:  # noqa: ANN401
        around = {"address": self.address, "view_query": self.picking.query(picks=False)}
        return self.html(template, **context, **around)


def _rows(seen: _Seen) -> dict[str, Any]:
    from firstdrift_server.match.panes import rows_of_pane
    from firstdrift_server.match.picking import SIDES

    parameters, panes = seen.request.query_params, seen.panes()
    side = SIDES[parameters.get("side") == "target"]
    found = rows_of_pane(seen.session, panes, side, seen.picking, parameters)
    chunks = [(number, seen.html("match_rows.html", rows=rows, pane=found)) for number, rows in found.chunks]
    return asdict(found) | {"version": seen.known.version, "shown": panes.comparison, "chunks": chunks}


def _state(seen: _Seen) -> dict[str, Any]:
    from firstdrift_server.match.view import state_view
    from firstdrift_server.parts.summary import worker_view

    state, worker = state_view(seen.session, seen.known, seen.position), worker_view(seen.session)
    html = seen.html("match_state.html", state=state, address=seen.address, worker=worker)
    return fields_of(state, ("version", "shown", "name")) | {"html": html}


def _picked(seen: _Seen) -> dict[str, Any]:
    from firstdrift_server.match.view import picked_view

    picked = picked_view(seen.session, seen.panes(), seen.picking)
    said = fields_of(picked, ("kind", "is_ready", "is_too_many"))
    return said | {"html": seen.html_with_picks("match_picked.html", picked=picked)}


def _effect(seen: _Seen) -> dict[str, Any]:
    from firstdrift_server.match.view import trial_view

    effect = trial_view(seen.session, seen.context, seen.known, seen.position, seen.picking)
    html = seen.html("match_effect.html", effect=effect)
    return {"version": seen.known.version, "ok": effect["problem"] is None, "html": html}


def _suggestions(seen: _Seen) -> dict[str, Any]:
    from firstdrift_server.match.view import ranked_view

    found = ranked_view(seen.session, seen.context, seen.known, seen.position, seen.picking)
    html = seen.html_with_picks("match_suggestions.html", found=found)
    return {"count": len(found["suggestions"]), "html": html}


_PARTS: dict[Part, Callable[[_Seen], dict[str, Any]]] = {
    "rows": _rows,
    "state": _state,
    "picked": _picked,
    "effect": _effect,
    "suggestions": _suggestions,
}


# ---- changes


@dataclass(frozen=True, slots=True)
class _Sent:
    """What somebody submitted."""

    context: Context
    comparison: int
    position: int
    picking: "Picking"
    fields: QueryParams

    @property
    def name(self) -> str:
        return self.fields.get("name") or ""

    @property
    def version(self) -> int:
        """The version that whoever submits a form has seen."""
        return read_number(self.fields.get("version"), "version") or 0

    def chosen(self, session: Session) -> int:
        if self.picking.match_set is None:
            raise SettingsError(
                Message.of("server.no_match_set_chosen"), hint=Message.of("server.choose_or_begin")
            )
        chosen = set_of(session, self.comparison, self.picking.match_set).id
        self.context.about("match_set", chosen)
        return chosen


def _edit(sent: _Sent) -> "Picking":
    from firstdrift_server.match.panes import panes_of
    from firstdrift_server.match.view import picked_view

    picking = sent.picking
    with sent.context.reading() as session:
        known = set_of(session, sent.comparison, picking.match_set)
        panes = panes_of(session, sent.context, known, sent.position)
        edits = (picking.edit(picked_view(session, panes, picking).kind),)
    return _with_set(picking, _lay_over(sent, edits), picks=False)


def _import(sent: _Sent) -> "Picking":
    # Forms send lines as networks once did.
    text = (sent.fields.get("text") or "").replace("\r\n", "\n")
    read = matches_in(sent.context, sent.name[:200], text)
    return _with_set(sent.picking, _lay_over(sent, read.edits, read.mappings))


def _lay_over(sent: _Sent, edits: tuple[Edit, ...], mappings: tuple[MappingFile, ...] = ()) -> int:
    """Check edits and lay them over the chosen match set, or over one that is begun; return its id."""
    match_set = sent.picking.match_set
    with sent.context.reading() as session:
        known = set_of(session, sent.comparison, match_set)
        if match_set is None:
            check_for(session, sent.context, known, edits, mappings)
        else:
            check(session, sent.context, match_set, sent.version, edits, mappings)
    with sent.context.writing() as session:
        made = (
            begin_set(session, sent.comparison, sent.fields.get("new_name") or "")
            if match_set is None
            else match_set
        )
        add_edits(session, made, 0 if match_set is None else sent.version, edits, mappings)
        sent.context.about("match_set", made)
    return made


def _step(change: Callable[[Session, int, int], object]) -> "Callable[[_Sent], Picking]":
    """Go a version back or on."""

    def step(sent: _Sent) -> "Picking":
        with sent.context.writing() as session:
            change(session, sent.chosen(session), sent.version)
        return sent.picking

    return step


def _begin(sent: _Sent) -> "Picking":
    with sent.context.writing() as session:
        get_slice_label(session, sent.comparison, sent.position)
        made = create_match_set(session, sent.comparison, sent.name)
        sent.context.about("match_set", made)
    return _with_set(sent.picking, made)


def _rename(sent: _Sent) -> "Picking":
    with sent.context.writing() as session:
        rename_match_set(session, sent.chosen(session), sent.name)
    return sent.picking


def _delete(sent: _Sent) -> "Picking":
    with sent.context.writing() as session:
        delete_match_set(session, sent.chosen(session))
    return _with_set(sent.picking, None)


def _restore(sent: _Sent) -> "Picking":
    with sent.context.writing() as session:
        restored = restore_match_set(session, sent.picking.match_set or 0)
        sent.chosen(session)
        sent.context.about("match_set", restored.id)
    return _with_set(sent.picking, restored.id)


_CHANGES: "dict[Change, Callable[[_Sent], Picking]]" = {
    "edit": _edit,
    "undo": _step(undo),
    "redo": _step(redo),
    "begin": _begin,
    "rename": _rename,
    "delete": _delete,
    "restore": _restore,
    "import": _import,
}


def _with_set(picking: "Picking", match_set: int | None, *, picks: bool = True) -> "Picking":
    kept = dataclasses.replace(picking, match_set=match_set)
    return kept if picks else dataclasses.replace(kept, golden=(), target=(), kind=None)
