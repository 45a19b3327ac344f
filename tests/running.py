"""firstdrift as a process, as somebody started it, and what it said."""

import http.cookiejar
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

FIRSTDRIFT = [sys.executable, "-m", "firstdrift.cli"]


class Running(NamedTuple):
    """A process, and the lines it said once it was ready: `open ADDRESS` last."""

    process: "subprocess.Popen[str]"
    lines: list[str]

    @property
    def url(self) -> str:
        """What was printed to be clicked."""
        return self.lines[-1].split()[-1]

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    def ask(self, *lines: str, body: str = "") -> tuple[int, str]:
        """Send the lines of a request as they are; give status and text of the answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall("\r\n".join([*lines, "Connection: close", "", body]).encode("latin-1"))
            with connection.makefile("rb") as answer:
                said = answer.read().decode("utf-8", "replace")
        return int(said.split(" ", 2)[1]), said


@contextmanager
def running(
    folder: Path, command: str, *options: str, program: str | None = None, **variables: str
) -> Iterator[Running]:
    """Run `firstdrift server` or `serve` while the block runs; variables are those of the environment.

    A program is Python that changes what it has to before it runs the command.
    """
    start = FIRSTDRIFT if program is None else [sys.executable, "-c", program]
    data = ["--port", "0", "--data-dir", str(folder / "data")]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"} | variables
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(
        [*start, command, str(folder), *data, *options], text=True, env=environment, **pipes
    ) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline().rstrip()]
            while lines[-1] and not lines[-1].startswith("open "):
                lines.append(process.stdout.readline().rstrip())
            assert lines[-1], "it said no address"
            yield Running(process, lines)
        finally:
            process.terminate()
            process.wait(30)


class Browser:
    """Keeps cookies, and follows where it is sent."""

    def __init__(self) -> None:
        self.cookies = http.cookiejar.CookieJar()
        keeper = urllib.request.HTTPCookieProcessor(self.cookies)
        self._opener = urllib.request.build_opener(keeper)

    def open(self, address: str, form: bytes | None = None) -> tuple[int, str]:
        """Give the status of the answer, and where it is."""
        try:
            with self._opener.open(address, form, timeout=60) as answer:
                return answer.status, answer.url
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.url
