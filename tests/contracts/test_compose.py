"""What docker-compose.yml promises, checked without a container engine.

`compose-spec.json` is the schema that the Compose Specification project publishes (Apache-2.0).
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_the_file_follows_the_compose_specification() -> None:
    schema = json.loads(Path(__file__).with_name("compose-spec.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(COMPOSE)


def test_it_starts_the_server_and_the_worker() -> None:
    usual = {name: service for name, service in SERVICES.items() if "profiles" not in service}
    assert {name: service["command"][0] for name, service in usual.items()} == {
        "server": "server",
        "worker": "worker",
    }


def test_the_profile_scale_starts_a_database_and_a_cluster_beside_them() -> None:
    scale = {name for name, service in SERVICES.items() if service.get("profiles") == ["scale"]}
    assert scale == {"database", "scheduler", "cluster"}
    (address, *_) = SERVICES["cluster"]["command"]
    assert address == f"tcp://scheduler:{SERVICES['scheduler']['command'][1]}"
    for name in ("server", "worker"):
        assert SERVICES[name]["environment"]["FIRSTDRIFT_DATABASE_URL"] == "${FIRSTDRIFT_DATABASE_URL:-}"
    assert SERVICES["worker"]["environment"]["FIRSTDRIFT_CLUSTER"] == "${FIRSTDRIFT_CLUSTER:-}"


def test_the_commands_of_the_cluster_work_as_processes(
    tmp_path: Path, unpacked: Callable[[str], Path]
) -> None:
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    here = {"8786": str(port), "tcp://scheduler:8786": address, "/tmp": str(tmp_path), "-1": "1"}  # noqa: S108
    dump = unpacked("msprobe/llama_stat_L0_perturb")
    with ExitStack() as cluster:
        for name in ("scheduler", "cluster"):
            words = [*SERVICES[name]["entrypoint"], *SERVICES[name]["command"]]
            program = str(Path(sys.executable).with_name(words[0]))
            command = [program, *(here.get(word, word) for word in words[1:])]
            process = cluster.enter_context(subprocess.Popen(command, stderr=subprocess.DEVNULL))
            cluster.callback(process.terminate)
            if name == "scheduler":
                wait_for_port(port)
        command = ["compare", str(dump / "golden"), str(dump / "target")]
        firstdrift = str(Path(sys.executable).with_name("firstdrift"))
        answers = [
            subprocess.run(
                [firstdrift, *command, *further, "--json"],
                capture_output=True,
                text=True,
                check=False,
                timeout=100,
            )
            for further in ([], ["--cluster", address])
        ]
    alone, together = (json.loads(answer.stdout) | {"seconds": None} for answer in answers)
    assert answers[1].stderr == ""
    assert together == alone


def wait_for_port(port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise AssertionError("nobody listens")


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES.keys())
def test_no_service_has_rights_it_does_not_need(service: dict[str, Any]) -> None:
    assert service["user"] not in {"0", "root"}
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert "privileged" not in service


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES.keys())
def test_every_service_comes_back_and_is_watched(service: dict[str, Any]) -> None:
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"][0] == "CMD"


UNITS = {"m": 20, "g": 30}


def unless_told(value: str) -> tuple[str, str]:
    """Return the name of a variable, and what is taken where it is not set."""
    found = re.fullmatch(r"\$\{(\w+):-([^}]+)\}", value)
    assert found, value
    return found[1], found[2]


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_takes_the_whole_machine(name: str) -> None:
    service = SERVICES[name]
    variable, memory = unless_told(service["mem_limit"])
    assert variable == f"FIRSTDRIFT_{name.upper()}_MEMORY"
    assert 1 << 30 <= int(memory[:-1]) << UNITS[memory[-1]] <= 64 << 30
    assert service["memswap_limit"] == service["mem_limit"]  # or the rest would be taken from the swap space
    variable, processes = unless_told(service["pids_limit"])
    assert variable == f"FIRSTDRIFT_{name.upper()}_PROCESSES"
    assert 100 <= int(processes) <= 10_000
    assert unless_told(service["cpus"]) == (f"FIRSTDRIFT_{name.upper()}_CPUS", "0")
    assert service["ulimits"] == {"nofile": 65536, "core": 0}


def test_every_variable_is_documented_and_every_documented_one_is_read() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `FIRSTDRIFT_")]
    told = set(re.findall(r"`(\w+)`", " ".join(rows)))
    read = set(re.findall(r"\$\{(FIRSTDRIFT_\w+)", (ROOT / "docker-compose.yml").read_text(encoding="utf-8")))
    assert told == read


def test_the_base_image_can_be_pinned_by_its_digest() -> None:
    variable, base = unless_told(SERVICES["server"]["build"]["args"]["BASE"])
    assert variable == "FIRSTDRIFT_BASE"
    assert f"ARG BASE={base}\n" in DOCKERFILE
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["${BASE}", "${BASE}"]
    assert re.fullmatch(r"python:3\.\d+-slim-\w+", base)  # Python, and the release of Debian


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES.keys())
def test_dumps_are_read_only_and_the_database_is_shared(service: dict[str, Any]) -> None:
    if "/var/lib/postgresql/data" in str(service["volumes"]):
        return  # the database sees no dumps
    dumps, data = (next(v for v in service["volumes"] if f":{at}" in v) for at in ("/dumps", "/data"))
    assert dumps.endswith(":/dumps:ro")
    assert data == "data:/data"
    assert "data" in COMPOSE["volumes"]


def test_nothing_is_served_without_a_token_or_to_the_network_unasked() -> None:
    assert SERVICES["server"]["environment"]["FIRSTDRIFT_TOKEN"].startswith("${FIRSTDRIFT_TOKEN:?")
    assert SERVICES["server"]["ports"] == ["${FIRSTDRIFT_ADDRESS:-127.0.0.1:8765}:8765"]


def test_the_image_runs_as_the_same_user_and_is_watched_on_its_own_too() -> None:
    assert f"USER {SERVICES['server']['user']}\n" in DOCKERFILE
    assert "HEALTHCHECK" in DOCKERFILE


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(url: str) -> tuple[int, str]:
    """Return status and body of a GET; status 0 while nobody listens."""
    try:
        answer = httpx2.get(url, timeout=5, trust_env=False)
    except httpx2.TransportError:
        return 0, ""
    return answer.status_code, answer.text


def wait_until(url: str, status: int) -> None:
    deadline = time.monotonic() + 60
    while ask(url)[0] != status:
        assert time.monotonic() < deadline, ask(url)
        time.sleep(0.1)


class Machine:
    """Runs the commands of the compose file as processes, with its two volumes as directories."""

    def __init__(self, data: Path) -> None:
        self.port = free_port()
        self.places = {"/data": str(data), "/dumps": str(ROOT / "examples"), "8765": str(self.port)}
        # As in a container: nothing of this machine but where programs and the home directory are.
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(data), "LANG": "C.UTF-8"}

    def here(self, command: list[str]) -> list[str]:
        firstdrift = str(Path(sys.executable).with_name("firstdrift"))
        return [firstdrift, *(self.places.get(word, word) for word in command)]

    @contextmanager
    def running(self, service: str, secrets: dict[str, str]) -> Iterator[None]:
        command = self.here(SERVICES[service]["command"])
        with subprocess.Popen(command, env=self.environment | secrets) as process:
            try:
                yield
                assert process.poll() is None, f"{service} did not stay"
            finally:
                process.terminate()
                process.wait(timeout=30)

    def worker_is_healthy(self) -> bool:
        _, *probe = SERVICES["worker"]["healthcheck"]["test"]
        assert probe[0] == "firstdrift"
        answer = subprocess.run(self.here(probe[1:]), env=self.environment, check=False)
        return answer.returncode == 0


def test_the_same_commands_work_as_processes_and_report_their_health(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    address = f"http://127.0.0.1:{machine.port}"
    with ExitStack() as both:
        both.enter_context(machine.running("server", {"FIRSTDRIFT_TOKEN": "a long random secret"}))
        wait_until(f"{address}/health", 200)
        assert ask(f"{address}/ready")[0] == 503
        assert not machine.worker_is_healthy()
        both.enter_context(machine.running("worker", {}))
        wait_until(f"{address}/ready", 200)
        assert machine.worker_is_healthy()
        assert "examples" not in ask(f"{address}/")[1]  # nothing is shown without the token


def test_the_server_does_not_start_without_its_token(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    answer = subprocess.run(
        machine.here(SERVICES["server"]["command"]),
        env=machine.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 2
    assert "FIRSTDRIFT_TOKEN" in answer.stderr
