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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from multiprocessing.connection import Pipe
from typing import Any, Final
from uuid import uuid4

from firstdrift.cluster import tasks
from firstdrift.cluster.tasks import Said, SliceTask
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
from firstdrift.errors import SettingsError
from firstdrift.processes.lanes import Lane
from firstdrift.processes.packed import pack, unpack
from firstdrift.verdict.baseline import QUIET
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
    try:
        client.run(tasks.require_version, version("firstdrift"))
    except SettingsError:
        raise
    except Exception as error:
        raise SettingsError(
            Message.of("cluster.cannot_work", why=f"{type(error).__name__}: {error}"),
            hint=Message.of("cluster.hint.same_version"),
        ) from error


class _Comparison:
    """What the lanes of a comparison share: the cluster, and what is compared."""

    def __init__(self, client: Any, work: Work) -> None:  # noqa: ANN401
        self.client = client
        self._name = uuid4().hex
        self._paths = work.paths[0].absolute(), work.paths[1].absolute()
        self._work = work
        self._is_warned = False

    def task(self, position: int) -> SliceTask:
        """Describe the work on a pair of slices."""
        listings = self._work.pairs[position]
        return SliceTask(
            comparison=self._name,
            golden=self._paths[0],
            target=self._paths[1],
            listings=listings,
            options=self._work.options,
            noise=self._work.noise.get(listings[0].coordinates, QUIET),
            details=self._work.details,
            slices=self._work.slices,
            roots=self._work.roots,
        )

    def warn(self, error: Exception) -> None:
        """Say once that the cluster could not do something, and why: whoever asked does it."""
        if not self._is_warned:
            self._is_warned = True
            _log.warning("the cluster cannot do all of it, which is done here: %r", error)

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
        """
        from distributed import wait

        while any(future.status == "pending" for future in futures):
            with suppress(TimeoutError):
                wait(futures, timeout=_LOOK_SECONDS)
        if any(future.cancelled() for future in futures):
            raise ClusterLostError


class ClusterLane(Lane):
    """A thread that has the tasks of one pair of slices done by a cluster."""

    def __init__(self, comparison: _Comparison) -> None:
        """Start it."""
        self.line, self._there = Pipe()
        self._comparison = comparison
        self._said = Judgements({})
        self._futures: tuple[Any, list[Any]] = (None, [])
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
            return self._prepare(question) if isinstance(question, Prepare) else self._judge(question)
        except ClusterLostError:
            raise
        except Exception as error:
            if self._comparison.client.status != "running":
                raise ClusterLostError from error
            self._comparison.warn(error)
            return Refused(question.position)  # it arises again where it is done again

    def _prepare(self, question: Prepare) -> Answer:
        submit, result = self._comparison.client.submit, self._comparison.result
        task = self._comparison.task(question.position)
        planned = submit(tasks.plan, task, pure=False)
        batches = result(submit(tasks.batches_of, planned, pure=False))
        measured = [submit(tasks.measure, task, planned, *batch, pure=False) for batch in batches]
        self._comparison.finish(measured)
        self._futures = planned, measured
        return Ready(question.position)

    def _judge(self, question: Judge) -> Answer:
        for at, known in question.said.items():
            self._said.add(at, known)
        position, (planned, measured) = question.position, self._futures
        before = {at: known for at, known in self._said.items() if at < position}
        task = self._comparison.task(position)
        judged = self._comparison.client.submit(
            tasks.judge, task, position, planned, measured, before, pure=False
        )
        said: Said = unpack(Said, self._comparison.result(judged))
        self._futures = (None, [])
        return Judged(position, said.said, said.handed, said.seconds)
