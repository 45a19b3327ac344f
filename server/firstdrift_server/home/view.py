"""The front page: comparisons, the dumps that are known, and the bin; searched, and in some order."""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import Order, count_uses, list_comparisons
from firstdrift.catalogue.dumps.records import DumpOrder, IndexedDump, list_dumps
from firstdrift.groups import positions
from firstdrift_server.context import Context
from firstdrift_server.parts.addresses import query_of
from firstdrift_server.parts.summary import comparison_summary, worker_view
from firstdrift_server.questions.folders import is_there
from firstdrift_server.uploads.view import dump_view

PAGE = 50
MOST_WEIGHED = 2000
"""So many comparisons, or dumps, the newest, are looked at to put the worst, or the largest, first."""

_RANKS = positions(("error", "warning", "running", "queued", "incomparable", "cancelled", "pass"))
"""How comparisons may have come out, the worst first."""


class Part(StrEnum):
    """The parts of the front page."""

    COMPARISONS = "comparisons"
    DUMPS = "dumps"
    BIN = "bin"


WORST = "worst"
LARGEST = "size"
ORDERS: dict[Part, tuple[str, ...]] = {
    Part.COMPARISONS: (Order.NEWEST, Order.OLDEST, WORST, Order.NAME),
    Part.DUMPS: (*DumpOrder, LARGEST),
    Part.BIN: (Order.NEWEST, Order.OLDEST, Order.NAME),
}


class Asked(Struct, frozen=True):
    """What the address of the front page asks for.

    Attributes:
        show: which part.
        text: only what mentions it.
        sort: one of the orders of that part; the first of them unless it is one.
        skip: how many entries are on the pages before.
    """

    show: Part = Part.COMPARISONS
    text: str = ""
    sort: str = ""
    skip: int = 0

    @property
    def order(self) -> str:
        """The order that is shown."""
        return self.sort if self.sort in ORDERS[self.show] else ORDERS[self.show][0]

    def address(self, **changed: object) -> str:
        """Return the address of this, with changes; what is at its default is left out."""
        said: dict[str, object] = {
            "show": self.show,
            "q": self.text,
            "sort": self.sort,
            "skip": self.skip,
        } | changed
        kept = {name: value for name, value in said.items() if value and value != Part.COMPARISONS}
        return f"/?{query_of(kept)}" if kept else "/"


def address_after(view: str, **said: object) -> str:
    """Return the address of a view of the front page that a form was submitted from, and say what was done.

    Whatever that address was, this is one of the front page.
    """
    known = dict(parse_qsl(view.partition("?")[2].partition("#")[0]))
    makes_sense = {"show": known.get("show") in set(Part), "skip": known.get("skip", "").isdecimal()}
    kept = [name for name in ("show", "q", "sort", "skip") if name in known and makes_sense.get(name, True)]
    said = {name: known[name] for name in kept} | said
    return f"/?{query_of(said)}" if said else "/"


def home_view(session: Session, context: Context, asked: Asked) -> dict[str, Any]:
    """Show a part of the front page: of a page with nothing on it (any more) the one before, or the first."""
    view: dict[str, Any] = {}
    for skip in dict.fromkeys((asked.skip, max(0, asked.skip - PAGE), 0)):
        asked = replace(asked, skip=skip)
        view = _dumps(session, context, asked) if asked.show is Part.DUMPS else _comparisons(session, asked)
        if view.get("comparisons") or view.get("dumps"):
            break
    more = view.pop("more")
    return view | {
        "show": str(asked.show),
        "text": asked.text,
        "sort": str(asked.order),
        "orders": list(map(str, ORDERS[asked.show])),
        "address": asked.address(),
        "parts": {str(part): Asked(part, asked.text).address() for part in Part},
        "all": Asked(asked.show).address(),
        "next": asked.address(skip=asked.skip + PAGE) if more else None,
        "previous": asked.address(skip=max(0, asked.skip - PAGE)) if asked.skip else None,
        "roots": context.settings.roots,
        "worker": worker_view(session),
    }


def _comparisons(session: Session, asked: Asked) -> dict[str, Any]:
    deleted = asked.show is Part.BIN
    if asked.order == WORST:
        found = list_comparisons(session, text=asked.text, limit=MOST_WEIGHED)
        summaries = [comparison_summary(session, comparison) for comparison in found]
        summaries.sort(key=lambda summary: _RANKS.get(summary.tone, len(_RANKS)))
        summaries = summaries[asked.skip :]
    else:
        found = list_comparisons(
            session,
            text=asked.text,
            deleted=deleted,
            order=Order(asked.order),
            skip=asked.skip,
            limit=PAGE + 1,
        )
        summaries = [comparison_summary(session, comparison) for comparison in found]
    shown = summaries[:PAGE]
    is_live = not deleted and any(summary.job.is_open for summary in shown)
    return {"comparisons": shown, "is_live": is_live, "more": len(summaries) > PAGE}


def _dumps(session: Session, context: Context, asked: Asked) -> dict[str, Any]:
    if asked.order == LARGEST:
        weighed = list_dumps(session, text=asked.text, limit=MOST_WEIGHED)
        found = tuple(sorted(weighed, key=lambda dump: -(_size(context, dump.path) or 0))[asked.skip :])
    else:
        order = DumpOrder(asked.order)
        found = list_dumps(session, text=asked.text, order=order, skip=asked.skip, limit=PAGE + 1)
    uses = count_uses(session, [dump.path for dump in found[:PAGE]])
    uploads = [
        _upload_view(context, path)
        for path in context.uploads.listed()
        if not asked.skip and all(word in path.name.lower() for word in asked.text.lower().split())
    ]
    dumps = [_dump_view(context, dump, uses[dump.path]) for dump in found[:PAGE]]
    waits = any(view["size"] is None and view["is_there"] for view in (*uploads, *dumps))
    return {"dumps": dumps, "uploads": uploads, "is_live": waits, "more": len(found) > PAGE}


def _size(context: Context, path: Path) -> int | None:
    return context.sizes.get(path) if is_there(context.roots, path) else None


def _dump_view(context: Context, dump: IndexedDump, uses: int) -> dict[str, Any]:
    path = str(dump.path)
    return {
        "id": dump.id,
        "address": f"/dumps/{dump.id}",
        "path": path,
        "name": "/".join(dump.path.parts[-2:]).lstrip("/"),
        "format": dump.format,
        "slices": dump.slices,
        "size": _size(context, dump.path),
        "problems": len(dump.problems),
        "indexed_at": dump.indexed_at,
        "comparisons": uses,
        "is_there": is_there(context.roots, dump.path),
        "golden": f"/new?{query_of({'golden': path})}",
        "target": f"/new?{query_of({'target': path})}",
        "uses": f"/?{query_of({'q': path})}",
    }


def _upload_view(context: Context, uploaded: Path) -> dict[str, Any]:
    dump = dump_view(context, uploaded)
    path = dump["path"] if dump["format"] else str(uploaded)
    return {
        "name": uploaded.name,
        "path": str(uploaded),
        "format": dump["format"],
        "holds": dump["holds"],
        "size": _size(context, uploaded),
        "is_there": True,
        "uploaded_at": datetime.fromtimestamp(uploaded.lstat().st_mtime, UTC),
        "golden": f"/new?{query_of({'golden': path} if dump['format'] else {'golden_at': path})}",
        "target": f"/new?{query_of({'target': path} if dump['format'] else {'target_at': path})}",
    }
