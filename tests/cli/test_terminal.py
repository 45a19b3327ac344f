"""What reaches a terminal: a bar while it works, no escape of a hostile name, a quiet end."""

import json
import os
import pty
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import COMMAND
from library.dumps.hostile_names import NAMES, write_hostile_dumps
from messages import titled

from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of

Run = Callable[..., Any]
Unpacked = Callable[[str], Path]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_hostile_dumps(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def large(unpacked: Unpacked) -> tuple[Path, Path]:
    dump = unpacked("msprobe/d32_renamed")
    return dump / "golden", dump / "target"


def require_printable(text: str) -> None:
    assert [line for line in text.split("\n") if not line.isprintable()] == []


@pytest.mark.parametrize("command", ["compare", "inspect"])
def test_no_name_reaches_the_terminal_with_control_characters(
    firstdrift: Run, hostile: tuple[Path, Path], command: str
) -> None:
    done = firstdrift(command, *(hostile if command == "compare" else hostile[:1]))
    require_printable(done.out)
    require_printable(done.err)


def test_hostile_names_are_spelled_out_and_stay_on_their_line(
    firstdrift: Run, hostile: tuple[Path, Path]
) -> None:
    done = firstdrift("compare", *hostile)
    assert done.status == 1
    assert r"\x1b[31mred\x1b]0;title\x07" in done.out.splitlines()[0]
    assert r"new\nfirst bad node: step 9, innocent" in done.out
    title = text_of(Message.of("terminal.first_bad_node"))
    assert sum(line.startswith(f"{title}:") for line in done.out.splitlines()) == 1
    assert r"\u202egnp.exe" in done.out
    assert "\u5c42.\u00e9\U0001f600" in done.out, "what can be printed is printed"
    assert titled("pairs", "27: 18 pass, 0 warning, 9 error") in done.out


def test_json_keeps_every_name_as_it_is(firstdrift: Run, hostile: tuple[Path, Path]) -> None:
    answer = json.loads(firstdrift("compare", *hostile, "--json").out)
    named = [answer["first_bad_node"], *answer["suspects"]]
    assert {finding["target"] for finding in named} == set(NAMES)


def test_a_hostile_path_is_spelled_out_too(firstdrift: Run, tmp_path: Path) -> None:
    done = firstdrift("inspect", tmp_path / os.fsdecode(b"no\xff\x1b[31m\nthing"))
    require_printable(done.err)
    assert (done.status, done.out) == (2, "")
    assert r"no\udcff\x1b[31m\nthing: " in done.err


def test_a_path_that_is_no_utf8_can_be_compared(
    firstdrift: Run, hostile: tuple[Path, Path], tmp_path: Path
) -> None:
    link = tmp_path / os.fsdecode(b"d\xff")
    link.symlink_to(hostile[0])
    text, answer = (firstdrift("compare", link, hostile[1], *options) for options in ([], ["--json"]))
    assert text.status == answer.status == 1
    assert r"d\udcff: msprobe" in text.out
    assert json.loads(answer.out)["golden"]["path"] == str(link)


def test_dumps_and_exports_may_have_names_that_are_no_utf8(
    firstdrift: Run, hostile: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = tmp_path / os.fsdecode("测试".encode("gbk"))
    shutil.copytree(hostile[0], folder / "golden")
    files = {ending: folder / f"out.{ending}" for ending in ("csv", "xlsx", "html")}
    wanted = [part for ending, file in files.items() for part in (f"--{ending}", file)]
    done = firstdrift("compare", folder / "golden", hostile[1], *wanted)
    assert (done.status, done.err) == (1, "")
    assert r"\xb2\xe2" in files["html"].read_text("utf-8")
    assert files["csv"].read_text("utf-8")
    inspected = json.loads(firstdrift("inspect", folder / "golden", "--json").out)
    assert inspected["path"] == str(folder / "golden")


def test_output_survives_a_terminal_that_knows_ascii_only(
    firstdrift: Run, hostile: tuple[Path, Path]
) -> None:
    for options in ([], ["--json"]):
        done = firstdrift("compare", *hostile, *options, PYTHONIOENCODING="ascii")
        assert (done.status, done.err) == (1, "")


def start_on_terminal(*arguments: str | Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start the command with its messages on a terminal and its output in a pipe."""
    terminal, other_end = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *map(os.fspath, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=other_end,
        env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"},
    )
    os.close(other_end)
    return process, terminal


def read_terminal(terminal: int) -> bytes:
    shown = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            part = b""
        if not part:
            os.close(terminal)
            return shown
        shown += part


def test_a_terminal_shows_progress_and_a_pipe_does_not(firstdrift: Run, large: tuple[Path, Path]) -> None:
    process, terminal = start_on_terminal("compare", *large)
    shown = read_terminal(terminal)
    out = process.communicate()[0].decode()
    assert process.returncode == 1
    assert b"reading" in shown or b"measuring" in shown
    assert b"\x1b[" in shown, "a bar moves the cursor"
    require_printable(out)
    piped = firstdrift("compare", *large)
    assert piped.err == ""
    assert piped.out.splitlines()[:-1] == out.splitlines()[:-1]


def test_ctrl_c_ends_quietly(large: tuple[Path, Path]) -> None:
    process, terminal = start_on_terminal("compare", *large)
    os.read(terminal, 1)  # it has begun
    while process.poll() is None:  # Python loses it where it strikes in a destructor: people press again
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)
    shown = read_terminal(terminal)
    out = process.communicate(timeout=20)[0]
    # Python itself ends by the signal if it struck while a class was being made; shells call both 130.
    assert process.returncode in (130, -signal.SIGINT)
    assert b"Traceback" not in shown
    assert out == b""


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_that_goes_away_is_no_error_to_shout_about(
    large: tuple[Path, Path], options: list[str]
) -> None:
    process = subprocess.Popen(
        [*COMMAND, "compare", *large, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    deadline = time.monotonic() + 30
    complaints = process.stderr.read()
    process.stderr.close()
    assert process.wait(deadline - time.monotonic()) == 128 + signal.SIGPIPE
    assert complaints == b""
