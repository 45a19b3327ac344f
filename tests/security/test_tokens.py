"""A server asks for a token, always; the one it makes up is told once, to whoever started it."""

import os
import re
import subprocess
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex, token_urlsafe

import psutil
import pytest
from messages import like, refuses, says
from running import FIRSTDRIFT, Browser, running

from firstdrift.errors import SettingsError
from firstdrift.serving import describe_address
from firstdrift_server import run
from firstdrift_server.settings import Settings, settings_from
from firstdrift_server.tokens import LEAST_BITS, SURE_BITS, estimated_bits, weakness

GIVEN = "correct horse battery staple"


def refuse(*arguments: str, **variables: str) -> str:
    """Run a command that does not want to; give what it says."""
    environment = os.environ | variables
    done = subprocess.run(
        [*FIRSTDRIFT, *arguments], capture_output=True, text=True, timeout=60, env=environment, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("command", ["server", "serve"])
def test_a_server_that_is_given_no_token_makes_one_up_and_one_click_logs_in(
    tmp_path: Path, command: str
) -> None:
    with running(tmp_path, command) as server:
        found = re.fullmatch(r"open (http://127\.0\.0\.1:\d+/)\?token=([\w-]{43})", server.lines[-1])
        assert found is not None, server.lines
        address, token = found.groups()
        assert Browser().open(f"{address}version")[0] == 401
        browser = Browser()
        assert browser.open(server.url) == (200, address)
        assert browser.open(f"{address}version")[0] == 200
        started = psutil.Process(server.process.pid)
        processes = [started, *started.children(recursive=True)]
        assert not any(token in " ".join(process.cmdline()) for process in processes)
        assert [
            path for path in tmp_path.rglob("*") if path.is_file() and token.encode() in path.read_bytes()
        ] == []
        server.process.terminate()
        assert server.process.stderr is not None
        assert token not in server.process.stderr.read()
    with running(tmp_path, "server") as again:
        assert token not in again.url


def test_the_comparison_that_was_asked_for_opens_with_a_click(
    tmp_path: Path, unpacked: Callable[[str], Path]
) -> None:
    pair = unpacked("msprobe/llama_stat_mix_perturb")
    dumps = [str(pair / "golden"), str(pair / "target")]
    with running(tmp_path, "serve", str(pair), "--compare", *dumps) as server:
        status, address = Browser().open(server.url)
        assert (status, address.rpartition(":")[2]) == (200, f"{server.port}/c/1")
        server.process.terminate()
        assert server.process.stdout is not None
        assert server.process.stdout.read() == "", "the address is the last thing that is said"


def test_the_operator_s_own_token_is_never_printed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{GIVEN}\n")
    file.chmod(0o600)
    for options, variables in (((), {"FIRSTDRIFT_TOKEN": GIVEN}), (("--token-file", str(file)), {})):
        with running(tmp_path, "server", *options, **variables) as server:
            assert server.lines[1:] == [
                "log in with the token you gave",
                f"open http://127.0.0.1:{server.port}/",
            ]
            assert server.ask("GET / HTTP/1.1", "Host: localhost")[0] == 401
            bearer = f"Authorization: Bearer {GIVEN}"
            assert server.ask("GET /version HTTP/1.1", "Host: localhost", bearer)[0] == 200


def test_who_wants_no_token_is_told_what_that_means(tmp_path: Path) -> None:
    with running(tmp_path, "server", "--no-token") as server:
        assert server.lines[1:] == [f"open http://127.0.0.1:{server.port}/"]
        assert server.ask("GET /version HTTP/1.1", "Host: localhost")[0] == 200
        server.process.terminate()
        assert server.process.stderr is not None
        warning = server.process.stderr.read()
    assert f"everybody with an account on this machine can read every dump under {tmp_path}" in warning


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])  # noqa: S104
def test_without_a_token_only_one_s_own_machine_is_served(host: str) -> None:
    assert says(refuse("server", "--host", host, "--no-token"), "server.others_could_reach")
    assert says(refuse("server", "--host", host), "server.others_could_reach")


def test_a_token_does_not_belong_on_the_command_line(tmp_path: Path) -> None:
    said = refuse("server", str(tmp_path), "--token", GIVEN)
    assert GIVEN not in said
    assert "--token-file" in said
    assert "FIRSTDRIFT_TOKEN" in said


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o620])
def test_a_file_that_others_can_read_or_write_holds_no_secret(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "token"
    file.write_text(GIVEN)
    file.chmod(mode)
    said = refuse("server", str(tmp_path), "--token-file", str(file))
    assert says(said, "server.token_file_readable")
    assert str(file) in said
    assert GIVEN not in said


def test_what_holds_no_token_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    os.mkfifo(file, 0o600)
    assert says(refuse("server", "--token-file", str(file)), "server.token_file_irregular")
    file.unlink()
    assert says(refuse("server", "--token-file", str(file)), "server.token_file_unreadable")
    for content, said in (
        (b"", "server.token_file_lines"),
        (b"\n \n", "server.token_file_lines"),
        (f"{GIVEN}\nsecond line".encode(), "server.token_file_lines"),
        (b"x" * 5000, "server.token_file_lines"),
        (b"\xff\xfe" * 20, "server.token_file_no_text"),
        (b"passwordpassword", "server.guessable_token"),
    ):
        file.unlink(missing_ok=True)
        file.write_bytes(content)
        file.chmod(0o600)
        assert says(refuse("server", "--token-file", str(file)), said), content


def test_one_word_on_tokens_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(GIVEN)
    file.chmod(0o600)
    both = refuse("server", "--token-file", str(file), FIRSTDRIFT_TOKEN=GIVEN)
    assert says(both, "server.token_and_file")
    assert says(refuse("server", "--no-token", FIRSTDRIFT_TOKEN=GIVEN), "server.token_and_no_token")


WEAK = [
    "hunter2",
    "a" * 15,
    "a" * 40,
    "ab" * 20,
    "0123456789abcdef",
    "9876543210987654",
    "qwertyuiopasdfgh",
    "password12345678",
    "PasswordPassword",
    "p4ssw0rdp4ssw0rd!",
    "changeme-changeme",
    "firstdrift-token",
    "letmein letmein letmein",
    "iloveyouiloveyou1",
    "hunter2hunter2hunter2",
    "20261122-20261122",
    "0000000000000001",
]


@pytest.mark.parametrize("token", WEAK)
def test_a_token_that_others_try_first_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(SettingsError, match=like("server.guessable_token", "server.short_token")) as refused:
        settings_from(token=token)
    said = "".join(traceback.format_exception(refused.value))
    assert "input_value" not in said
    assert token not in "".join(line for line in said.splitlines() if "Error" in line)


@pytest.mark.parametrize(
    "token",
    [
        GIVEN,
        "a long random secret",
        "Zt8Kq2Wn5Rb7Xc1M",
        "我们的服务器上的一个很长的口令子",
        "893a335c6d6a715ecfde2d92b0c51fe2",
    ],
)
def test_a_token_that_needs_guessing_is_accepted(token: str) -> None:
    assert weakness(token) is None
    assert settings_from(token=token).secret == token


def test_what_is_made_at_random_is_strong() -> None:
    assert min(estimated_bits(token_urlsafe(32)) for _ in range(200)) > SURE_BITS
    assert min(estimated_bits(token_hex(32)) for _ in range(200)) > SURE_BITS
    assert min(estimated_bits(token_urlsafe(12)) for _ in range(200)) > LEAST_BITS
    made = Settings().with_token()
    assert made.secret is not None
    assert weakness(made.secret) is None
    assert made.with_token() is made
    assert made.secret not in repr(made)


def test_a_very_long_token_is_looked_at_in_no_time() -> None:
    began = time.process_time()
    assert weakness(token_urlsafe(1 << 16)) is None
    assert time.process_time() - began < 5


def test_a_token_that_was_made_up_is_told_and_a_given_one_is_not() -> None:
    url = "http://127.0.0.1:8765/"
    made = settings_from().with_token()
    for asked, page in (([], ""), ([7], "c/7"), ([1, 2], "")):
        assert describe_address(url, made, asked).splitlines()[-1] == f"open {url}{page}?token={made.secret}"
    assert GIVEN not in describe_address(url, settings_from(token=GIVEN).with_token(), [1])


def test_a_server_is_not_run_without_a_word_on_tokens(tmp_path: Path) -> None:
    with refuses(SettingsError, "server.no_token"):
        run(settings_from(data_dir=tmp_path, port=0))


def test_worker_and_check_need_no_token_and_make_none(tmp_path: Path) -> None:
    data = ["--data-dir", str(tmp_path)]
    for variables in (
        {"FIRSTDRIFT_HOST": "0.0.0.0"},  # noqa: S104
        {"FIRSTDRIFT_TOKEN": "weak"},
        {"FIRSTDRIFT_TOKEN_FILE": str(tmp_path / "missing")},
    ):
        done = subprocess.run(
            [*FIRSTDRIFT, "check", str(tmp_path), *data],
            capture_output=True,
            text=True,
            timeout=120,
            env=os.environ | variables,
            check=False,
        )
        assert "ok    root" in done.stdout, done.stderr
    with subprocess.Popen(
        [*FIRSTDRIFT, "worker", *data],
        env=os.environ | {"FIRSTDRIFT_HOST": "0.0.0.0", "FIRSTDRIFT_TOKEN": "weak"},  # noqa: S104
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        while worker.poll() is None and not (tmp_path / "firstdrift.db").exists():
            time.sleep(0.05)
        assert worker.poll() is None
        worker.terminate()
