"""What is tried for seconds in the server's process lets pages through between its steps."""

import socket
import sys

import pytest
from starlette.responses import PlainTextResponse

from firstdrift_server import connections
from firstdrift_server.connections import Server, serve


def test_a_server_has_threads_go_on_in_turn_ten_times_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    before, found = sys.getswitchinterval(), list[float]()
    monkeypatch.setattr(Server, "run", lambda *_, **__: found.append(sys.getswitchinterval()))
    monkeypatch.setattr(connections, "allow_many_files", lambda: None)
    try:
        with socket.socket() as listener:
            serve(PlainTextResponse("here"), listener)
    finally:
        sys.setswitchinterval(before)
    assert found == [pytest.approx(connections.SWITCH_SECONDS, rel=0.01)]
    assert before / 10 >= connections.SWITCH_SECONDS
