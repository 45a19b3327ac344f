"""The front page: comparisons, the dumps that are known, and the bin; searched, and in some order."""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from urllib.parse import parse_qsl

from msgspec import Struct
from msgspec.structs import asdict, replace
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import Order, count_uses, list_comparisons
from firstdrift.catalogue.dumps.records import DumpOrder, IndexedDump, list_dumps
from firstdrift.groups import positions
from firstdrift_server.context import Context
from firstdrift_server.dumps.slices import dump_summary
from firstdrift_server.parts.addresses import query_of
from firstdrift_server.parts.match_sets import ResultsView, results_over
from firstdrift_server.parts.summary import ComparisonSummary, WorkerView, comparison_summary, worker_view
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
        verdict: only comparisons that came out so; empty for all.
    """

    show: Part = Part.COMPARISONS
    text: str = ""
    sort: str = ""
    skip: int = 0
    verdict: str = ""

    @property
    def outcome(self) -> str:
        """How the comparisons came out that are shown; empty for all."""
        return self.verdict if self.verdict in _RANKS and self.show is Part.COMPARISONS else ""

    @property
    def order(self) -> str:
        """The order that is shown."""
        return self.sort if self.sort in ORDERS[self.show] else ORDERS[self.show][0]

    def address(self, **changed: object) -> str:
        """Return the address of this, with changes; what is at its default is left out."""
        said: dict[str, object] = {
            "show": self.show,
            "q": self.text,
            "verdict": self.outcome,
            "sort": self.sort,
            "skip": self.skip,
        } | changed
        kept = {name: value for name, value in said.items() if value and value != Part.COMPARISONS}
        return f"/?{query_of(kept)}" if kept else "/"


class DumpEntry(Struct, frozen=True):
    """A dump that was read, in how many comparisons it is, and the addresses of new ones with it."""

    id: int
    address: str
    path: str
    name: str
    format: str
    slices: int
    size: int | None
    problems: int
    indexed_at: datetime
    comparisons: int
    is_there: bool
    golden: str
    target: str
    uses: str


class UploadEntry(Struct, frozen=True):
    """What was uploaded; `holds` are the dumps in a folder that is none itself."""

    name: str
    path: str
    format: str | None
    holds: list[str]
    size: int | None
    uploaded_at: datetime
    golden: str
    target: str
    is_there: bool = True


class Listed(Struct, frozen=True):
    """What a page of a part lists, and whether there are more."""

    is_live: bool = False
    more: bool = False
    comparisons: list[ComparisonSummary] = []
    dumps: list[DumpEntry] = []
    uploads: list[UploadEntry] = []


class HomeView(Struct, frozen=True, kw_only=True):
    """A part of the front page.

    Attributes:
        sets: match sets that are laid over comparisons, by the ids of these.
        parts: the address of each part.
        all: the address of the same part without a search.
        verdict: how the comparisons came out that are shown; empty for all. `verdicts` may be chosen.
        deleted: the comparison that was just deleted, which can be taken back; likewise removed, an upload.
    """

    show: Part
    text: str
    sort: str
    orders: list[str]
    verdict: str
    verdicts: list[str]
    address: str
    parts: dict[str, str]
    all: str
    next: str | None
    previous: str | None
    roots: list[Path]
    worker: WorkerView
    is_live: bool
    comparisons: list[ComparisonSummary]
    sets: dict[int, list[ResultsView]]
    dumps: list[DumpEntry]
    uploads: list[UploadEntry]
    deleted: int | None = None
    removed: str | None = None


def address_after(view: str, **said: object) -> str:
    """Return the address of a view of the front page that a form was submitted from, and say what was done.

    Whatever that address was, this is one of the front page.
    """
    known = dict(parse_qsl(view.partition("?")[2].partition("#")[0]))
    makes_sense = {"show": known.get("show") in set(Part), "skip": known.get("skip", "").isdecimal()}
    kept = [
        name
        for name in ("show", "q", "verdict", "sort", "skip")
        if name in known and makes_sense.get(name, True)
    ]
    said = {name: known[name] for name in kept} | said
    return f"/?{query_of(said)}" if said else "/"


def home_view(session: Session, context: Context, asked: Asked) -> HomeView:
    """Show a part of the front page: of a page with nothing on it (any more) the one before, or the first."""
    listed = Listed()
    for skip in dict.fromkeys((asked.skip, max(0, asked.skip - PAGE), 0)):
        asked = replace(asked, skip=skip)
        listed = _dumps(session, context, asked) if asked.show is Part.DUMPS else _comparisons(session, asked)
        if listed.comparisons or listed.dumps:
            break
    return HomeView(
        show=asked.show,
        text=asked.text,
        sort=str(asked.order),
        orders=list(map(str, ORDERS[asked.show])),
        verdict=asked.outcome,
        verdicts=list(_RANKS),
        address=asked.address(),
        parts={str(part): Asked(part, asked.text).address() for part in Part},
        all=Asked(asked.show).address(),
        next=asked.address(skip=asked.skip + PAGE) if listed.more else None,
        previous=asked.address(skip=max(0, asked.skip - PAGE)) if asked.skip else None,
        roots=list(context.settings.roots),
        worker=worker_view(session),
        is_live=listed.is_live,
        comparisons=listed.comparisons,
        sets={one.id: results_over(session, one.id) for one in listed.comparisons},
        dumps=listed.dumps,
        uploads=listed.uploads,
    )


def _comparisons(session: Session, asked: Asked) -> Listed:
    deleted = asked.show is Part.BIN
    if asked.order == WORST or asked.outcome:
        summaries = _weighed(session, asked)[asked.skip :]
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
    return Listed(is_live, len(summaries) > PAGE, comparisons=shown)


def _weighed(session: Session, asked: Asked) -> list[ComparisonSummary]:
    """List the comparisons that came out as is asked for, which is known of those that were looked at."""
    order = Order.NEWEST if asked.order == WORST else Order(asked.order)
    found = list_comparisons(session, text=asked.text, order=order, limit=MOST_WEIGHED)
    every = (comparison_summary(session, comparison) for comparison in found)
    summaries = [summary for summary in every if asked.outcome in ("", summary.tone)]
    if asked.order == WORST:
        summaries.sort(key=lambda summary: _RANKS.get(summary.tone, len(_RANKS)))
    return summaries


def _dumps(session: Session, context: Context, asked: Asked) -> Listed:
    if asked.order == LARGEST:
        weighed = list_dumps(session, text=asked.text, limit=MOST_WEIGHED)
        found = tuple(sorted(weighed, key=lambda dump: -(_size(context, dump.path) or 0))[asked.skip :])
    else:
        order = DumpOrder(asked.order)
        found = list_dumps(session, text=asked.text, order=order, skip=asked.skip, limit=PAGE + 1)
    uses = count_uses(session, [dump.path for dump in found[:PAGE]])
    uploads = [
        _upload_entry(context, path)
        for path in context.uploads.listed()
        if not asked.skip and all(word in path.name.lower() for word in asked.text.lower().split())
    ]
    dumps = [_dump_entry(context, dump, uses[dump.path]) for dump in found[:PAGE]]
    entries: list[UploadEntry | DumpEntry] = [*uploads, *dumps]
    waits = any(entry.size is None and entry.is_there for entry in entries)
    return Listed(waits, len(found) > PAGE, dumps=dumps, uploads=uploads)


def _size(context: Context, path: Path) -> int | None:
    return context.sizes.get(path) if is_there(context.roots, path) else None


def _dump_entry(context: Context, dump: IndexedDump, uses: int) -> DumpEntry:
    path = str(dump.path)
    return DumpEntry(
        **asdict(dump_summary(dump)),
        slices=dump.slices,
        size=_size(context, dump.path),
        problems=len(dump.problems),
        indexed_at=dump.indexed_at,
        comparisons=uses,
        is_there=is_there(context.roots, dump.path),
        golden=f"/new?{query_of({'golden': path})}",
        target=f"/new?{query_of({'target': path})}",
        uses=f"/?{query_of({'q': path})}",
    )


def _upload_entry(context: Context, uploaded: Path) -> UploadEntry:
    dump = dump_view(context, uploaded)
    path, side_at = (dump["path"], "{}") if dump["format"] else (str(uploaded), "{}_at")
    return UploadEntry(
        name=uploaded.name,
        path=str(uploaded),
        format=dump["format"],
        holds=dump["holds"],
        size=_size(context, uploaded),
        uploaded_at=datetime.fromtimestamp(uploaded.lstat().st_mtime, UTC),
        golden=f"/new?{query_of({side_at.format('golden'): path})}",
        target=f"/new?{query_of({side_at.format('target'): path})}",
    )
