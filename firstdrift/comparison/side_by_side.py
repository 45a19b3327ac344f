"""Pairs of slices that are prepared side by side, by copies of this process, and judged in order.

    this process          lane 1                  lane 2
    Prepare 0     ──▶     read, match, measure
    Prepare 1     ──────────────────────────▶     read, match, measure
                  ◀──     Ready 0                 Ready 1
    Judge 0       ──▶     judge, keep
                  ◀──     Judged 0, what was kept
    Judge 1, what was said of 0  ───────────▶     judge, keep

What is said of a pair may depend on those before. Pairs that run at one time, such as the ranks of a step,
are judged side by side all the same, and so are all where no step of training was seen: most pairs bear on no
other. Where one did (`firstdrift.verdict.earlier.Context`), those that did not know of it are done again.

What is measured stays in the lane: only what is said of a pair of slices, and what its storage hands over,
comes back. What a lane could not do, however it ended, this process does itself, so that whatever is wrong
shows here; what is left when there are no more lanes, whoever asked does.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct

from firstdrift.comparison.report import Options
from firstdrift.comparison.session import ComparisonSession, Prepared, Storage
from firstdrift.model.slice import Coordinates, SliceListing
from firstdrift.processes.lanes import Lane
from firstdrift.processes.packed import pack, unpack
from firstdrift.verdict.baseline import Noise
from firstdrift.verdict.comparable import time_of
from firstdrift.verdict.earlier import Context
from firstdrift.verdict.judgement import SliceJudgement


class Prepare(Struct, frozen=True, tag=True):
    """Read, match and measure a pair of slices."""

    position: int


class Judge(Struct, frozen=True, tag=True):
    """Judge the pair that is ready, knowing what was said of pairs since the last question."""

    position: int
    said: dict[int, SliceJudgement]


class Doing(Struct, frozen=True, tag=True):
    """So many pairs of tensors are measured, of so many."""

    position: int
    done: int
    total: int


class Ready(Struct, frozen=True, tag=True):
    """A pair of slices is measured."""

    position: int


class Judged(Struct, frozen=True, tag=True):
    """What is said of a pair of slices, what its storage hands over, and seconds by stage."""

    position: int
    said: SliceJudgement
    kept: bytes
    seconds: dict[str, float]


class Refused(Struct, frozen=True, tag=True):
    """It could not be done here."""

    position: int


_CHECK_SECONDS: Final = 0.2
_AHEAD: Final = 2
"""So many answers for each lane wait to be accepted; then nothing new is begun."""

Question: TypeAlias = Prepare | Judge
Answer: TypeAlias = Doing | Ready | Judged | Refused


class Taker(Protocol):
    """Keeps what lanes hand over."""

    def take(self, answer: Judged) -> None:
        """Keep here what a lane handed over of a pair of slices."""


class DividedStorage(Storage, Taker, Protocol):
    """A storage that part of the work may be done for in lanes."""

    def divide(self, tell: Callable[[int, int, int], None]) -> None:
        """Know that this is a lane: `tell` how many pairs of a position are measured, of how many."""

    def hand_over(self, position: int) -> bytes:
        """Give what was kept of a pair in a lane."""


class Work(Struct, frozen=True):
    """What a comparison of two dumps consists of.

    Attributes:
        paths: of the golden and the target dump.
        pairs: the golden and the target slice of each pair.
        noise: what a healthy run shows of golden slices.
        details: whether rows and pairs of tensors are asked for, beside what is said of slices.
        unknown: for a catalogue, which of the two slices of each pair it does not know yet; None where there
            is no catalogue.
        roots: real paths of the directories outside of which nothing is read; None for no bounds.
    """

    paths: tuple[Path, Path]
    options: Options
    pairs: tuple[tuple[SliceListing, SliceListing], ...]
    noise: Mapping[Coordinates, Noise]
    details: bool
    unknown: tuple[tuple[bool, bool], ...] | None = None
    roots: tuple[Path, ...] | None = None


class Crew(Protocol):
    """Somebody who does the work elsewhere."""

    def lanes(self, work: Work) -> AbstractContextManager[list[Lane]]:
        """Give lanes for the block, each of which does one pair of slices after the other."""


def serve(session: ComparisonSession, storage: DividedStorage, line: Connection) -> None:
    """Answer questions about pairs of slices until there are no more.

    Raises:
        EOFError: nobody asks any more.
    """

    def answer(said: Answer) -> None:
        line.send_bytes(pack(said))

    storage.divide(lambda position, done, total: answer(Doing(position, done, total)))
    prepared: dict[int, Prepared] = {}
    while True:
        question: Question = unpack(Question, line.recv_bytes())
        try:
            answer(_answered(session, storage, prepared, question))
        except Exception:  # noqa: BLE001 - it arises again where it is done again
            answer(Refused(question.position))


def _answered(
    session: ComparisonSession, storage: DividedStorage, prepared: dict[int, Prepared], question: Question
) -> Answer:
    position = question.position
    if isinstance(question, Prepare):
        ready = session.prepare(position)
        if ready is None:
            return Refused(position)
        prepared[position] = ready
        return Ready(position)
    for at, known in question.said.items():
        session.judged.add(at, known)
    ready = prepared.pop(position)
    said = session.judge(position, ready)
    return Judged(position, said, storage.hand_over(position), ready.clock.seconds)


class SideBySide:
    """Hands pairs of slices out to lanes, and accepts what they say in order."""

    def __init__(
        self,
        session: ComparisonSession,
        taker: Taker,
        lanes: Sequence[Lane],
        places: Sequence[Coordinates],
        progress: Callable[[int, int, int], None],
        check: Callable[[], None] | None = None,
        *,
        guesses: bool = True,
    ) -> None:
        """Prepare.

        Args:
            session: what was judged so far.
            taker: keeps what the lanes find.
            lanes: those that call `serve`.
            places: where the target slice of each pair is in its run.
            progress: is told how many pairs of slices are judged, and of those under way how many pairs of
                tensors are measured, of how many.
            check: called several times a second; what it raises ends the work. None if nothing does.
            guesses: whether pairs are judged before it is known that nothing bears on them: not where lanes
                keep for good what they say.
        """
        self._session, self._taker, self._places = session, taker, places
        self._progress, self._check, self._guesses = progress, check, guesses
        self._idle = list(lanes)
        self._of_line: dict[Connection, Lane] = {lane.line: lane for lane in lanes}
        self._at: dict[Lane, int] = {}
        self._ready: dict[int, Lane] = {}
        self._refused: set[int] = set()
        self._recalled: dict[int, SliceJudgement] = {}
        self._assumed: dict[int, Context | None] = {}
        self._answers: dict[int, Judged] = {}
        self._order = list(session.judged)
        self._told = dict.fromkeys(lanes, 0)
        self._under_way: dict[int, tuple[int, int]] = {}

    def run(self, positions: Iterable[int]) -> list[int]:
        """Judge pairs of slices; return those that are left because all lanes have ended.

        Raises:
            FirstdriftError: as when they are judged one after the other.
        """
        waiting = deque(positions)
        judging = deque(waiting)
        while judging and self._of_line:
            self._hand_out(waiting)
            self._let_judge(judging[0])
            position = judging[0]
            if position in self._refused:
                self._session.look_at(position)
            elif (answer := self._answers.pop(position, None)) is not None:
                if not self._holds(answer):
                    self._refused.add(position)  # all lanes may wait for this one
                    continue
                self._accept(answer)
            elif (said := self._recalled.pop(position, None)) is not None:
                self._session.judged.add(position, said)
            else:
                self._listen()
                continue
            self._done(judging.popleft())
        return list(judging)

    def _let_judge(self, first: int) -> None:
        """Have pairs judged that are ready, if those that are not judged, from `first` on, bear on none."""
        for position in sorted(self._ready):
            if position == first or self._is_likely_alone(position, first):
                lane = self._ready.pop(position)
                self._assumed[position] = None if position == first else self._context(position)
                self._ask(lane, Judge(position, self._said_since(lane)))

    def _is_likely_alone(self, position: int, first: int) -> bool:
        """Tell whether a pair is likely to be judged alike whatever is said of those from `first` on."""
        if not self._guesses:
            return False
        if time_of(self._places[first]) == time_of(self._places[position]):
            return True
        judged = self._session.judged
        return bool(judged) and not judged.before(position).has_training

    def _holds(self, answer: Judged) -> bool:
        """Tell whether a pair would be judged alike now that all before it are."""
        assumed = self._assumed.pop(answer.position)
        if assumed is None:
            return True
        now = self._context(answer.position)
        if not answer.said.origins:
            assumed = assumed._replace(has_origins=now.has_origins)
        return assumed == now and now.are_alike

    def _context(self, position: int) -> Context:
        return self._session.context(position, self._places[position])

    def _accept(self, answer: Judged) -> None:
        self._session.judged.add(answer.position, answer.said)
        self._session.clock.add(answer.seconds)
        self._taker.take(answer)

    def _hand_out(self, waiting: deque[int]) -> None:
        """Let idle lanes prepare what comes next, unless what was said of it still holds."""
        while self._idle and waiting and len(self._answers) < _AHEAD * len(self._of_line):
            position = waiting.popleft()
            if (said := self._session.known(position)) is not None:
                self._recalled[position] = said
            else:
                self._ask(self._idle.pop(), Prepare(position))

    def _done(self, position: int) -> None:
        if position in self._session.judged:
            self._order.append(position)
        self._under_way.pop(position, None)
        self._tell()

    def _tell(self) -> None:
        measured = (sum(counts) for counts in zip(*self._under_way.values(), strict=True))
        done, total = (*measured, 0, 0)[:2]
        self._progress(len(self._order), done, total)

    def _said_since(self, lane: Lane) -> dict[int, SliceJudgement]:
        """Return what was said since a lane was told of it."""
        new = self._order[self._told[lane] :]
        self._told[lane] = len(self._order)
        return {position: self._session.judged[position] for position in new}

    def _ask(self, lane: Lane, question: Question) -> None:
        self._at[lane] = question.position
        try:
            lane.line.send_bytes(pack(question))
        except UnicodeEncodeError:  # a name has characters that cannot be sent
            self._refused.add(question.position)
            self._free(lane)
        except OSError:  # a lane that ended is noticed where answers are read
            return

    def _listen(self) -> None:
        """Take in answers."""
        lines = wait(list(self._of_line), None if self._check is None else _CHECK_SECONDS)
        if self._check is not None:
            self._check()
        for line in lines:
            lane = self._of_line[line]  # type: ignore[index]
            try:
                answer: Any = unpack(Answer, lane.line.recv_bytes())
            except (EOFError, OSError):
                self._lose(lane)
            else:
                self._take(lane, answer)

    def _take(self, lane: Lane, answer: Answer) -> None:
        match answer:
            case Doing(position, done, total):
                self._under_way[position] = done, total
                self._tell()
            case Ready(position):
                self._ready[position] = lane
            case Refused(position):
                self._refused.add(position)
                self._free(lane)
            case Judged(position):
                self._answers[position] = answer
                self._free(lane)

    def _free(self, lane: Lane) -> None:
        self._at.pop(lane)
        self._idle.append(lane)

    def _lose(self, lane: Lane) -> None:
        """Do what a lane that ended was at here."""
        del self._of_line[lane.line]
        if lane in self._idle:
            self._idle.remove(lane)
        position = self._at.pop(lane, None)
        if position is not None:
            self._ready.pop(position, None)
            self._refused.add(position)


@contextmanager
def started(start: Callable[[], Lane], count: int) -> Iterator[list[Lane]]:
    """Start so many lanes, or as many as there may be processes, and end them after the block."""
    lanes: list[Lane] = []
    try:
        with suppress(OSError):
            lanes.extend(start() for _ in range(count))
        yield lanes
    finally:
        for lane in lanes:
            lane.end()
