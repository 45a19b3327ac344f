"""What every route may need: the settings, the database, and what was looked at a moment ago."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeVar

from fastapi import Depends, Request
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.slice_pairs import SliceLabel
from firstdrift.catalogue.engine import reading, writing
from firstdrift.catalogue.jobs.waiting import require_room
from firstdrift.catalogue.people.audit import Actor
from firstdrift.comparison.report import Options
from firstdrift.processes.children import Children
from firstdrift.processes.limits import GIB, Limits
from firstdrift.processes.writers import Writers, Written
from firstdrift.recent import Recent
from firstdrift_server.doing import Doing, begin
from firstdrift_server.export.wanted import Wanted
from firstdrift_server.sessions import Sessions
from firstdrift_server.settings import Settings
from firstdrift_server.sizes import Sizes
from firstdrift_server.traffic import Traffic
from firstdrift_server.turns import Turns, TurnsOfEach
from firstdrift_server.uploads.store import Uploads
from firstdrift_server.visitors import Visit

if TYPE_CHECKING:
    from firstdrift.catalogue.comparisons.layers import Layer
    from firstdrift.catalogue.comparisons.outline import Outline
    from firstdrift.catalogue.comparisons.rule_preview import Measured
    from firstdrift.catalogue.comparisons.sides import Sides
    from firstdrift.catalogue.dumps.single_dump import DumpTree
    from firstdrift.catalogue.matches.match_preview import Bench
    from firstdrift.comparison.single_dump import TensorView
    from firstdrift_server.questions.likely import Likely
    from firstdrift_server.questions.pairs import DumpPair

LOOKED_AT_AT_ONCE = 2
"""So many tensors, or pairs of them, are looked at at a time, each of which may take 100 MB and a second."""

LISTED_AT_ONCE = 2
"""So many dumps are recognised, listed or asked for call stacks at a time."""

WRITTEN_AT_ONCE = 4
"""So many files are written at a time: one more than all but the owner may ask for, each in up to 200 MB."""

VISITORS_AT_ONCE: Mapping[Visit, int] = {Visit.PAGE: 8, Visit.RULES: 2, Visit.FILE: 3}
"""So many visitors who came through links are answered at a time; files are counted with those of members.

There are 40 threads and 15 connections to the database for all who ask; trying rules may take a processor
for seconds, and writing a file for a minute.
"""

MEMBERS_AT_ONCE = 16
"""So many requests of members are answered at a time: most of the 40 threads stay free for the owner."""

FILES_OF_ONE = 2
"""So many files are on their way to one member, or to those who came through one link."""

BODIES_AT_ONCE = 8
"""So many bodies of each member, or of visitors through a link, are in memory or on their way.

Parts of uploads are among them, of 16 MiB at most: one member takes up to 128 MiB.
"""

TRIED_AT_ONCE = 3
"""So many rules or matches are tried at a time for the owner, in the server or by its children."""

TRIED_BY_MEMBERS = 2
"""So many are tried for members: fewer than there are children, so that one is left to the owner."""

CHECKED_AT_ONCE = 4
"""The links of so many visitors are looked up at a time, before they take a turn."""

MOST_PAIRS = 40_000
"""Measurements of so many pairs of tensors are kept at hand: about 200 MB."""

MOST_EDGES = 200_000
"""Layers of graphs with so many edges are kept at hand: about 50 MB."""

MOST_DIFFERENCES = 1_000_000
"""Answers of so many differences of log-probabilities are kept at hand: about 100 MB."""

LOOK_LIMITS = Limits(memory=2 * GIB, seconds=60.0)
LIST_LIMITS = Limits(memory=2 * GIB, seconds=30.0)
TRY_LIMITS = Limits(memory=2 * GIB, seconds=45.0)
WRITE_LIMITS = Limits(memory=2 * GIB, seconds=3600.0)

_PRELOADED = (
    "firstdrift_server.export.written",
    "firstdrift_server.questions.closeup",
    "firstdrift_server.questions.dumps",
    "firstdrift_server.questions.folders",
    "firstdrift_server.questions.likely",
    "firstdrift_server.questions.pairs",
    "firstdrift_server.questions.rollout",
    "numpy",
)

Given = ParamSpec("Given")
Value = TypeVar("Value")


@cache
def _children(most: int, limits: Limits) -> Children:
    """Give the child processes that all applications of this process share."""
    return Children(most, limits, preload=_PRELOADED)


@cache
def _writers() -> Writers:
    """Give what starts the processes that write files, for all applications of this process."""
    return Writers(WRITTEN_AT_ONCE, WRITE_LIMITS, preload=_PRELOADED)


def prepare_children() -> None:
    """Have imported what child processes need, so that nobody waits for that."""
    _children(LISTED_AT_ONCE, LIST_LIMITS).prepare()


def _differences_in(answer: Mapping[str, Any]) -> int:
    """Say how large an answer about a rollout is: one about all sequences as large as its map and lists."""
    return _LEAST_DIFFERENCES + len(answer.get("differences", ()))


_LEAST_DIFFERENCES = 30_000


@dataclass(frozen=True, slots=True)
class Context:
    """What routes share.

    Attributes:
        uploads: what visitors have uploaded.
        sessions: of those who have shown the token; None where none is asked for.
        sizes: of dumps, as far as they are known.
        outlines: of trees, by id and revision of their slice pair.
        sides: which sides their rows have, likewise.
        layers: of graphs, by id and revision of their slice pair and the row of the module, -1 for none.
        stacks: call stacks of the nodes of a slice, by the id of the indexed slice.
        benches: pairs of indexed slices, matched but for edits, by their ids and what was asked for.
        dump_trees: trees of single dumps, by the id of the slice and how much of it was computed.
        computed: statistics of tensors that were computed for a page, by slice, node and position.
        measured: what was measured of slice pairs, by their id and revision.
        likely: matches that would resolve most, by comparison, match set, their versions, slice, files.
        pairs: dumps that lie together, by the roots and a while.
        rollouts: what was answered of a rollout and a trainer, by files, their dates and what was asked.
        looking: child processes that look at values of tensors.
        listing: child processes that look for dumps, and into them, but at no values.
        trying: child processes that try matches.
        writers: starts the processes that write files.
        turns: one is held by each visitor who is being answered.
        members: likewise by each member.
        bodies: of each member and link, held by one who sends a body, and until it is answered.
        trials: likewise by the owner who has something tried; `trials_of_members` by members who do.
        checks: one is held while it is looked up what the link of a visitor opens.
        doing: what the request does that is answered, for the audit log; None for nothing of it.
        traffic: what was answered, and how fast.
    """

    settings: Settings
    engine: Engine
    uploads: Uploads
    sessions: Sessions | None = None
    sizes: Sizes = field(default_factory=Sizes)
    outlines: Recent[tuple[int, int], "Outline"] = field(default_factory=lambda: Recent(16))
    sides: Recent[tuple[int, int], "Sides"] = field(default_factory=lambda: Recent(16))
    layers: Recent[tuple[int, int, int], "Layer"] = field(
        default_factory=lambda: Recent(MOST_EDGES, lambda layer: 1 + len(layer.golden) + len(layer.target))
    )
    stacks: Recent[int, Mapping[str, tuple[str, ...]]] = field(default_factory=lambda: Recent(4))
    benches: Recent[tuple[int, int, Options], "Bench"] = field(default_factory=lambda: Recent(4))
    dump_trees: Recent[tuple[int, int], "DumpTree"] = field(default_factory=lambda: Recent(6))
    computed: Recent[tuple[int, int, int], "TensorView"] = field(default_factory=lambda: Recent(4096))
    measured: Recent[tuple[int, int], "Measured"] = field(
        default_factory=lambda: Recent(MOST_PAIRS, lambda measured: len(measured.measurements))
    )
    likely: Recent[Hashable, tuple["Likely", ...]] = field(default_factory=lambda: Recent(64))
    pairs: Recent[Hashable, tuple["DumpPair", ...]] = field(default_factory=lambda: Recent(2))
    rollouts: Recent[Hashable, dict[str, Any]] = field(
        default_factory=lambda: Recent(MOST_DIFFERENCES, _differences_in)
    )
    looking: Children = field(default_factory=lambda: _children(LOOKED_AT_AT_ONCE, LOOK_LIMITS))
    listing: Children = field(default_factory=lambda: _children(LISTED_AT_ONCE, LIST_LIMITS))
    trying: Children = field(default_factory=lambda: _children(TRIED_AT_ONCE, TRY_LIMITS))
    writers: Writers = field(default_factory=_writers)
    turns: Mapping[Visit, Turns] = field(
        default_factory=lambda: {visit: Turns(most) for visit, most in VISITORS_AT_ONCE.items()}
    )
    members: Turns = field(default_factory=lambda: Turns(MEMBERS_AT_ONCE))
    files_of: TurnsOfEach = field(default_factory=lambda: TurnsOfEach(FILES_OF_ONE))
    bodies: TurnsOfEach = field(default_factory=lambda: TurnsOfEach(BODIES_AT_ONCE))
    trials: Turns = field(default_factory=lambda: Turns(TRIED_AT_ONCE))
    trials_of_members: Turns = field(default_factory=lambda: Turns(TRIED_BY_MEMBERS))
    checks: Turns = field(default_factory=lambda: Turns(CHECKED_AT_ONCE))
    doing: Doing | None = None
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def roots(self) -> tuple[Path, ...]:
        """The directories that may be browsed and read: the operator's, and the one of uploads."""
        uploads = self.uploads.folder
        return (*self.settings.roots, uploads) if uploads.is_dir() else self.settings.roots

    @property
    def member(self) -> int | None:
        """Which member changes something; None for nobody who is one."""
        who = None if self.doing is None else self.doing.deed.who
        return who.number if who is not None and who.actor is Actor.MEMBER else None

    def look(self, question: Callable[Given, Value], *given: Given.args, **named: Given.kwargs) -> Value:
        """Have a question about values of tensors answered in a child process, bounded by the roots.

        Raises:
            LimitError: it took more than a child may have, the child died, or all are busy.
            FirstdriftError: what the question raised.
        """
        return self.looking.ask(self.roots, question, *given, **named)

    def in_child(self, question: Callable[Given, Value]) -> Callable[Given, Value]:
        """Return a function that does in a child process, as `look` does, what the given one does."""

        def ask(*given: Given.args, **named: Given.kwargs) -> Value:
            return self.look(question, *given, **named)

        return ask

    def ask(self, question: Callable[Given, Value], *given: Given.args, **named: Given.kwargs) -> Value:
        """Have a question about dumps, but not about values, answered in a child process; raises likewise."""
        return self.listing.ask(self.roots, question, *given, **named)

    def try_out(self, question: Callable[Given, Value], *given: Given.args, **named: Given.kwargs) -> Value:
        """Have matches tried in a child process, as `look` does; to be called outside of `reading`."""
        return self.trying.ask(self.roots, question, *given, **named)

    def write_out(self, wanted: Wanted) -> Written:
        """Have a comparison written as a file by a process of its own.

        Raises:
            BusyError: as many files as may be are being written already.
            LimitError: it took more than it may, or the process died.
            FirstdriftError: what kept it from beginning.
        """
        from firstdrift_server.export.written import pieces_of

        return self.writers.begin(pieces_of, self.settings.database, wanted)

    def reading(self) -> AbstractContextManager[Session]:
        """Give a session with one consistent view of the database."""
        return reading(self.engine)

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Give a session for what a person asks for, which is kept through a power cut, as is who did it."""
        with writing(self.engine, durable=True) as session:
            yield session
            require_room(session, for_member=self.member is not None)
            if self.doing is not None:
                self.doing.enter(session)
        if self.doing is not None:
            self.doing.is_entered = True

    def about(self, kind: str = "", subject: object = "", comparison: int | None = None) -> None:
        """Say for the audit log of what it is that is being done, where the address does not."""
        if self.doing is not None:
            self.doing.about(kind, subject, comparison)

    def read(
        self, view: Callable[Concatenate[Session, Given], Value], *given: Given.args, **named: Given.kwargs
    ) -> Value:
        """Give what a function makes of one consistent view of the database."""
        with self.reading() as session:
            return view(session, *given, **named)

    def write(
        self, change: Callable[Concatenate[Session, Given], Value], *given: Given.args, **named: Given.kwargs
    ) -> Value:
        """Have a function change the database; return what it says."""
        with self.writing() as session:
            return change(session, *given, **named)

    def outline(self, session: Session, pair: SliceLabel) -> "Outline":
        """Return the outline of the tree of a slice pair."""
        from firstdrift.catalogue.comparisons.outline import load_outline

        return self.outlines.get((pair.id, pair.revision), lambda: load_outline(session, pair.id))


def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    doing = begin(request)
    return context if doing is None else replace(context, doing=doing)


Shared = Annotated[Context, Depends(_context)]
