"""`make audit` tells a package with a known fault apart from a service that could not be asked."""

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FAULT = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2.11.3"]}
GOOD: dict[str, Any] = {"name": "click", "version": "8.5.1", "vulns": []}
BAD = {"name": "jinja2", "version": "2.10", "vulns": [FAULT]}
UNKNOWN = {"name": "uv", "skip_reason": "not found"}


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    specification = importlib.util.spec_from_file_location("audit", ROOT / "requirements" / "audit.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def service(folder: Path, told: str, status: int) -> list[str]:
    """Write what answers as pip-audit does; give its command."""
    script = folder / "pip_audit.py"
    complaint = "print('ConnectionError: no route', file=sys.stderr)"
    script.write_text(f"import sys\nprint({told!r})\n{complaint}\nsys.exit({status})")
    return [sys.executable, str(script)]


@pytest.mark.parametrize(
    ("packages", "status", "says"),
    [
        ([GOOD], 0, "7 packages audited, 0 known faults"),
        ([GOOD, BAD], 1, "run.txt: jinja2 2.10: PYSEC-1, CVE-1; mended in 2.11.3"),
        ([GOOD, UNKNOWN], 0, "!!! NOT AUDITED: run.txt: uv"),
        ([UNKNOWN], 0, "!!! NOT AUDITED: run.txt: the service could not be asked (it knows none"),
        (None, 0, "!!! NOT AUDITED: run.txt: the service could not be asked (ConnectionError: no route)"),
    ],
    ids=["good", "fault", "unknown", "all unknown", "no answer"],
)
def test_a_known_fault_is_told_apart_from_a_service_that_is_away(
    audit: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    packages: list[dict[str, Any]] | None,
    status: int,
    says: str,
) -> None:
    told = "" if packages is None else json.dumps({"dependencies": packages})
    # pip-audit itself exits with 1 for both.
    command = service(tmp_path, told, 0 if packages == [GOOD] else 1)
    assert audit.main(command, tmp_path) == status
    assert says in capsys.readouterr().out


def test_every_list_is_audited_but_that_of_another_build(audit: ModuleType) -> None:
    folder = ROOT / "requirements"
    lists = {file.relative_to(folder).as_posix() for file in folder.rglob("*.txt")}
    assert lists - {*audit.LISTS} == {"torch-cpu.txt"}
    assert {*audit.LISTS} <= lists


def test_what_audits_is_pinned_with_hashes() -> None:
    text = (ROOT / "requirements" / "tools" / "audit.txt").read_text("utf-8")
    entries = [one for one in re.split(r"\n(?=\S)", text.strip()) if not one.startswith("#")]
    assert len(entries) > 10
    assert all("==" in one and "--hash=sha256:" in one for one in entries)


def test_the_workflow_may_do_nothing_and_runs_only_what_is_fixed() -> None:
    text = (ROOT / ".github" / "workflows" / "audit.yml").read_text("utf-8")
    known = yaml.safe_load(text)
    assert known["permissions"] == {}
    assert known["jobs"]["audit"]["permissions"] == {"contents": "read"}
    used = re.findall(r"uses: (\S+)", text)
    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one) for one in used)
    # "on" is what YAML takes for true.
    assert {"schedule", "push", "pull_request", "workflow_dispatch"} == {*known[True]}
    assert "make audit" in text
    assert "audit" not in (ROOT / ".ci" / "run").read_text("utf-8")
