"""Visitors and members who send slowly, or nothing, or never finish, keep nobody else from being answered."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from clients import Client
from running import FIRSTDRIFT, running
from soak import record, rounds
from working import wait_until

from firstdrift_server.connections import MOST_WAITING, allow_many_files
from firstdrift_server.context import BODIES_AT_ONCE

SLOW = 1200
MOST = 20
LARGE = 64 << 20
TAKE_SECONDS = 1.0
HEAD_SECONDS, BODY_SECONDS, LEAVE_SECONDS = 4.0, 4.0, 3.0
PATIENCE = 30.0
"""Seconds in which each request is answered, also on a machine that does much else."""

IMPATIENT = f"""
from firstdrift_server import connections
connections.HEAD_SECONDS, connections.BODY_SECONDS = {HEAD_SECONDS}, {BODY_SECONDS}
connections.ANSWERS_SECONDS, connections.LEAVE_SECONDS = 1, {LEAVE_SECONDS}
connections.TAKE_SECONDS = {TAKE_SECONDS}
"""
"""What shortens the times for which a server waits, so that the tests need not wait as long."""

SERVER = f"""{IMPATIENT}
from firstdrift.cli import run
run()
"""

PARTS, PART = rounds(20, 200), 1 << 16
SLOW_PARTS = 40
PATIENT = """
from firstdrift_server import connections
from firstdrift_server.guards import turns
connections.BODY_SECONDS, turns.WAIT_SECONDS = 600, 1
from firstdrift.cli import run
run()
"""
"""A server that waits longer for bodies than a test takes, and hardly for a turn."""

STUCK = f"""{IMPATIENT}
connections.MOST_CONNECTIONS = {MOST}
import threading
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from firstdrift.serving import leave_on_sigterm
from firstdrift_server import listen
from firstdrift_server.connections import serve
from firstdrift_server.settings import Settings

leave_on_sigterm()

def stuck(request):
    threading.Event().wait()

large = "x" * {LARGE}
routes = [Route("/stuck", stuck), Route("/large", lambda request: PlainTextResponse(large))]
routes.append(Route("/", lambda request: PlainTextResponse("here")))
with listen(Settings(port=0)) as listener:
    print(listener.getsockname()[1], flush=True)
    serve(Starlette(routes=routes), listener)
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    with running(tmp_path_factory.mktemp("served"), "server", "--no-token", program=SERVER) as server:
        yield "127.0.0.1", server.port


@contextmanager
def connections(address: tuple[str, int], beginning: bytes, count: int) -> Iterator[list[socket.socket]]:
    allow_many_files()
    with ExitStack() as opened:
        made = [opened.enter_context(socket.create_connection(address, PATIENCE)) for _ in range(count)]
        for one in made:
            one.sendall(beginning)
        yield made


def is_closed(connection: socket.socket) -> bool:
    """Tell whether the other side has closed a connection; what it said before is passed over."""
    try:
        while connection.recv(65536, socket.MSG_DONTWAIT):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def answered(address: tuple[str, int]) -> bool:
    with urlopen(f"http://{address[0]}:{address[1]}/health", timeout=PATIENCE) as answer:
        return bool(answer.status == 200)


@pytest.mark.parametrize(
    "beginning", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "], ids=["", "head"]
)
def test_many_slow_heads_keep_nobody_from_being_answered(address: tuple[str, int], beginning: bytes) -> None:
    with connections(address, beginning, SLOW) as slow:
        for _ in range(10):
            assert answered(address)
        wait_until(lambda: sum(map(is_closed, slow)) >= SLOW - MOST_WAITING, PATIENCE)
        for one in slow[-20:]:  # a byte now and then is no head
            if not is_closed(one):
                one.send(b"a")
        wait_until(lambda: all(map(is_closed, slow)), HEAD_SECONDS + PATIENCE)
        assert answered(address)


def whole_answer(one: socket.socket) -> bytes:
    """Read an answer to its end, in however many pieces it comes."""
    answer = b""
    while b'{"ok":true}' not in answer:
        piece = one.recv(65536)
        assert piece, answer
        answer += piece
    return answer


def test_a_connection_that_was_answered_once_may_not_send_slowly_either(address: tuple[str, int]) -> None:
    whole = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connections(address, whole, 1) as (one,):
        assert b"200 OK" in whole_answer(one)
        one.sendall(whole + whole[:20])
        assert b"200 OK" in whole_answer(one)
        wait_until(lambda: is_closed(one), HEAD_SECONDS + PATIENCE)


def test_a_body_that_does_not_come_is_waited_for_a_while_only(address: tuple[str, int]) -> None:
    head = b"POST /api/v1/comparisons HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with connections(address, head + b'Content-Length: 100\r\n\r\n{"golden": ', 50) as slow:
        began = time.monotonic()
        assert answered(address)
        wait_until(lambda: all(map(is_closed, slow)), BODY_SECONDS + PATIENCE)
        assert time.monotonic() - began > BODY_SECONDS / 2


def test_a_body_that_comes_steadily_may_take_longer(address: tuple[str, int]) -> None:
    size = 40_000
    head = f"POST /language HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n".encode()
    head += b"Content-Type: application/x-www-form-urlencoded\r\n\r\n"
    with connections(address, head, 1) as (one,):
        for _ in range(8):
            one.sendall(bytes(size // 8))
            time.sleep(BODY_SECONDS / 6)
        assert one.recv(65536).startswith(b"HTTP/1.1 4")  # an answer, whatever it says


def waits(connection: socket.socket) -> bool:
    """Tell whether nothing has been answered yet."""
    connection.settimeout(0)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    return False


def begun(client: Client) -> str:
    """Announce an upload; give the address of its only file."""
    files = [{"path": "run/a", "size": PARTS * PART}]
    return f"/api/v1/uploads/{client.data('POST', '/api/v1/uploads', {'files': files})['id']}/files/0?offset="


def of_member(name: str, data: Path) -> str:
    """Add a member; give what their requests say."""
    command = [*FIRSTDRIFT, "member", "add", name, "--data-dir", str(data)]
    return f"Bearer {subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()}"


def test_parts_of_uploads_that_a_member_sends_slowly_keep_no_other_member_waiting(tmp_path: Path) -> None:
    signed = [of_member(name, tmp_path / "data") for name in ("ann", "bo")]
    token = "the token of whoever started it"  # noqa: S105
    with running(tmp_path, "server", program=PATIENT, FIRSTDRIFT_TOKEN=token) as server:
        slow, other = (Client(f"http://127.0.0.1:{server.port}", {"Authorization": one}) for one in signed)
        of_slow, of_other = begun(slow), begun(other)
        head = f"PUT {of_slow}0 HTTP/1.1\r\nHost: localhost\r\nAuthorization: {signed[0]}\r\n"
        head += f"Content-Length: {PART}\r\n\r\na"
        with connections(("127.0.0.1", server.port), head.encode(), SLOW_PARTS) as sent:
            wait_until(lambda: slow.ask("PUT", f"{of_slow}0", raw=bytes(PART))[0] == 503, PATIENCE)
            began = time.monotonic()
            for number in range(PARTS):
                other.data("PUT", f"{of_other}{number * PART}", raw=bytes(PART))
            other.data("POST", of_other.partition("/files/")[0] + "/complete")
            took = time.monotonic() - began
            wait_until(lambda: sum(map(waits, sent)) == BODIES_AT_ONCE, PATIENCE)
        assert took < rounds(1, 4) * PATIENCE
    record(
        "visitors",
        f"{SLOW_PARTS} parts that a member sends slowly, {BODIES_AT_ONCE} on their way: "
        f"the {PARTS} parts of another member have arrived in {took:.1f} s",
    )


@contextmanager
def stuck_server(folder: Path) -> "Iterator[tuple[subprocess.Popen[str], tuple[str, int]]]":
    command = [sys.executable, "-c", STUCK]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=dict(os.environ), cwd=folder
    ) as server:
        try:
            assert server.stdout is not None
            yield server, ("127.0.0.1", int(server.stdout.readline()))
        finally:
            server.kill()


def test_there_are_only_so_many_connections(tmp_path: Path) -> None:
    head = b"GET /stuck HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with stuck_server(tmp_path) as (_, here), connections(here, head, MOST + 5) as made:
        for one in made:
            one.settimeout(0)
        wait_until(lambda: sum(map(is_closed, made)) == 5, PATIENCE)
        made[0].close()
        wait_until(lambda: answered_at(here), PATIENCE)
        assert sum(map(is_closed, made[1:])) == 5


def answered_at(address: tuple[str, int]) -> bool:
    try:
        with urlopen(f"http://{address[0]}:{address[1]}/", timeout=PATIENCE) as answer:
            return bool(answer.read() == b"here")
    except OSError:  # the one that was closed is still counted
        return False


def test_whoever_takes_nothing_of_an_answer_is_cut_off_and_whoever_takes_it_slowly_is_not(
    tmp_path: Path,
) -> None:
    head = b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with stuck_server(tmp_path) as (_, here), connections(here, head, 2) as (idle, slow):
        taken, until = 0, time.monotonic() + 4 * TAKE_SECONDS
        while time.monotonic() < until:
            taken += len(slow.recv(1 << 18))
            time.sleep(TAKE_SECONDS / 10)
        while piece := slow.recv(1 << 20):
            taken += len(piece)
        assert taken > LARGE, "all of it, and its head"
        left = 0
        try:
            while piece := idle.recv(1 << 20):
                left += len(piece)
        except ConnectionError:
            pass
        assert left < LARGE, "what was not taken is not there any more"


def test_a_server_that_is_told_to_stop_ends_whatever_its_visitors_do(tmp_path: Path) -> None:
    with stuck_server(tmp_path) as (server, here):
        head = b"GET /stuck HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with connections(here, head, 3), connections(here, b"GET / HT", 3):
            with urlopen(f"http://{here[0]}:{here[1]}/", timeout=PATIENCE) as answer:
                assert answer.read() == b"here"
            server.send_signal(signal.SIGTERM)
            server.wait(LEAVE_SECONDS + PATIENCE)
