"""Lanes whose work a Dask cluster does: a thread here, and tasks there.

    SideBySide ── Prepare ──▶ thread ── plan, measure ──▶ cluster      the plan stays there
               ◀── Ready ───         ◀── done ──────────
               ── Judge ────▶        ── judge ──────────▶
               ◀── Judged ──         ◀── what is said ───

A worker of the cluster that is lost costs its tasks, which the cluster gives to another. Where the cluster is
lost, the lanes end, and what they were at is done by whoever asked, as when a process ends.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from multiprocessing.connection import Pipe
from typing import Any, Final, NamedTuple
from uuid import uuid4

from firstdrift.cluster import tasks
from firstdrift.cluster.tasks import Batch, Engine, Known, Said, SliceTask
from firstdrift.comparison.session import Judgements
from firstdrift.comparison.side_by_side import (
    Answer,
    Judge,
    Judged,
    Prepare,
    Question,
    Ready,
    Refused,
    Work,
    started,
)
from firstdrift.errors import DumpError, SettingsError
from firstdrift.processes.lanes import Lane
from firstdrift.processes.packed import pack, unpack
from firstdrift.verdict.baseline import QUIET
from firstdrift.verdict.judgement import SliceJudgement
from firstdrift.wording.message import Message

_log = logging.getLogger(__name__)

_CONNECT_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 1.0
_AHEAD: Final = 2
"""Lanes beyond the threads of the cluster: while some wait to be judged, others are measured."""


class ClusterLostError(Exception):
    """The scheduler does not answer any more."""


class Cluster:
    """A Dask cluster: a crew (`firstdrift.comparison.side_by_side.Crew`) on other machines."""

    def __init__(self, address: str) -> None:
        """Know the address of its scheduler, "tcp://host:8786"; nothing is asked of it yet."""
        self._address = address

    def __str__(self) -> str:
        """Name it."""
        return f"the cluster at {self._address}"

    @contextmanager
    def lanes(self, work: Work) -> Iterator[list[Lane]]:
        """Give lanes for the block.

        Raises:
            SettingsError: Dask is not installed, or no scheduler answers there, or it has no workers.
        """
        with _connected(self._address) as client:
            comparison = _Comparison(client, work)
            count = min(len(work.pairs), sum(client.ncores().values()) + _AHEAD)
            with started(lambda: ClusterLane(comparison), count) as lanes:
                yield lanes


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    try:
        from distributed import Client
    except ImportError as error:
        raise SettingsError(
            Message.of("cluster.not_installed"), hint=Message.of("cluster.hint.install")
        ) from error
    try:
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise SettingsError(
            Message.of("cluster.no_answer", address=address), hint=Message.of("cluster.hint.address")
        ) from error
    try:
        _require_workers(client, address)
        yield client
    finally:
        with suppress(TimeoutError):
            client.close(timeout=_LOOK_SECONDS)


def _require_workers(client: Any, address: str) -> None:  # noqa: ANN401 (distributed has no types)
    with suppress(TimeoutError):
        client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
    if not client.ncores():
        hint = Message.of("cluster.hint.workers", address=address)
        raise SettingsError(Message.of("cluster.no_workers", address=address), hint=hint)
    for answer in client.run(tasks.require_version, version("firstdrift"), on_error="return").values():
        if isinstance(answer, SettingsError):
            raise answer
        if isinstance(answer, Exception):
            raise SettingsError(
                Message.of("cluster.cannot_work", why=f"{type(answer).__name__}: {answer}"),
                hint=Message.of("cluster.hint.same_version"),
            ) from answer


class _Comparison:
    """What the lanes of a comparison share: the cluster, and what is compared."""

    def __init__(self, client: Any, work: Work) -> None:  # noqa: ANN401
        self.client = client
        self._name = uuid4().hex
        self._paths = work.paths[0].absolute(), work.paths[1].absolute()
        self._work = work
        self._is_warned = False
        self._agreeing: list[str] | None = None
        self._engine: Engine = None
        self._said: dict[int, SliceJudgement] = {}
        self._lock = threading.Lock()

    def task(self, position: int) -> SliceTask:
        """Describe the work on a pair of slices."""
        listings, unknown = self._work.pairs[position], self._work.unknown
        return SliceTask(
            comparison=self._name,
            golden=self._paths[0],
            target=self._paths[1],
            listings=listings,
            options=self._work.options,
            noise=self._work.noise.get(listings[0].coordinates, QUIET),
            version=version("firstdrift"),
            details=self._work.details,
            unknown=None if unknown is None else unknown[position],
            roots=self._work.roots,
        )

    def engine(self, size: int) -> Engine:
        """Say what measures values there: what would measure them here, where slices have so many bytes."""
        with self._lock:
            if size and self._engine is None:
                from firstdrift.metrics.elementwise.measure import engine_in_use, prepare_engine

                prepare_engine(size * len(self._work.pairs))
                self._engine = engine_in_use()
            return self._engine if size else None

    def shared(self, position: int, said: SliceJudgement) -> SliceJudgement:
        """Return what is said of a pair of slices as another lane was told it, so that all hold it once."""
        with self._lock:
            return self._said.setdefault(position, said)

    def warn(self, error: Exception) -> None:
        """Say once that the cluster could not do something, and why: whoever asked does it."""
        if not self._is_warned:
            self._is_warned = True
            _log.warning("the cluster cannot do all of it, which is done here: %r", error)

    def submit(self, function: Callable[..., object], *arguments: object) -> Any:  # noqa: ANN401
        """Have something done by a worker, of those that agree if some do not; give its future."""
        return self.client.submit(function, *arguments, pure=False, workers=self._agreeing)

    def agreeing(self) -> list[str] | None:
        """Say which workers do all of it: None for whoever is there, unless some were of another version."""
        return self._agreeing

    def ask_who_agrees(self) -> list[str] | None:
        """Leave out workers that have come since and are of another version; say which are left, likewise."""
        with self._lock:
            said = self.client.run(tasks.require_version, version("firstdrift"), on_error="return")
            agreeing = sorted(worker for worker, refusal in said.items() if refusal is None)
            if agreeing and len(agreeing) < len(said):
                self._agreeing = agreeing
            return self._agreeing

    def result(self, future: Any) -> Any:  # noqa: ANN401
        """Wait for a task.

        Raises:
            ClusterLostError: the scheduler does not answer any more.
            Exception: what the task raised.
        """
        self.finish([future])
        return future.result()

    def finish(self, futures: Sequence[Any]) -> None:
        """Wait until tasks are done, well or not.

        Raises:
            ClusterLostError: the scheduler does not answer any more, and has forgotten them.
            SettingsError: no worker that agrees is left.
        """
        from distributed import wait

        while any(future.status == "pending" for future in futures):
            with suppress(TimeoutError):
                wait(futures, timeout=_LOOK_SECONDS)
                continue
            self._require_agreeing()
        if any(future.cancelled() for future in futures):
            raise ClusterLostError

    def _require_agreeing(self) -> None:
        agreeing = self._agreeing
        if agreeing is not None and self.client.ncores().keys().isdisjoint(agreeing):
            raise SettingsError(
                Message.of("cluster.none_agrees"), hint=Message.of("cluster.hint.same_version")
            )


class ClusterLane(Lane):
    """A thread that has the tasks of one pair of slices done by a cluster."""

    def __init__(self, comparison: _Comparison) -> None:
        """Start it."""
        self.line, self._there = Pipe()
        self._comparison = comparison
        self._said = Judgements({})
        self._prepared = _Prepared()
        threading.Thread(target=self._serve, name="cluster lane", daemon=True).start()

    def end(self) -> None:
        """End the thread, as soon as it has no task under way."""
        self.line.close()

    def _serve(self) -> None:
        client = self._comparison.client
        with self._there, client.as_current(), suppress(EOFError, OSError, ClusterLostError):
            while True:
                question: Question = unpack(Question, self._there.recv_bytes())
                self._there.send_bytes(pack(self._answer(question)))

    def _answer(self, question: Question) -> Answer:
        try:
            return self._answer_by_others(question)
        except ClusterLostError:
            raise
        except Exception as error:
            if self._comparison.client.status != "running":
                raise ClusterLostError from error
            self._comparison.warn(error)
            return Refused(question.position)  # it arises again where it is done again

    def _answer_by_others(self, question: Question) -> Answer:
        """Answer; where a worker could not, that came since and is of another version, have others do it."""
        if isinstance(question, Judge):
            for at, known in question.said.items():
                self._said.add(at, self._comparison.shared(at, known))
        answer = self._prepare if isinstance(question, Prepare) else self._judge
        agreeing = self._comparison.agreeing()
        try:
            return answer(question.position)
        except (ClusterLostError, DumpError):
            raise
        except Exception:
            is_lost = self._comparison.client.status != "running"
            if is_lost or self._comparison.ask_who_agrees() == agreeing:
                raise
            return answer(question.position)

    def _prepare(self, position: int) -> Answer:
        submit, comparison = self._comparison.submit, self._comparison
        task = comparison.task(position)
        planned = submit(tasks.plan, task)
        batches: list[Batch] = comparison.result(submit(tasks.batches_of, task, planned))
        engine = comparison.engine(sum(batch.size for batch in batches))
        measured = [submit(tasks.measure, task, planned, batch, engine) for batch in batches]
        comparison.finish(measured)
        for failed in (future for future in measured if future.status == "error"):
            raise failed.exception()
        self._prepared = _Prepared(planned, measured, engine)
        return Ready(position)

    def _judge(self, position: int) -> Answer:
        prepared, comparison = self._prepared, self._comparison
        task = comparison.task(position)
        earlier = self._said.before(position).bearing_on(task.listings[1].coordinates)
        known = Known(position, earlier, prepared.engine)
        judged = comparison.submit(tasks.judge, task, prepared.planned, prepared.measured, known)
        said: Said = unpack(Said, comparison.result(judged))
        self._prepared = _Prepared()
        return Judged(position, said.said, said.handed, said.seconds)


class _Prepared(NamedTuple):
    """What a lane has measured: futures of the plan and of the measurements, and by which engine."""

    planned: Any = None
    measured: Sequence[Any] = ()
    engine: Engine = None
