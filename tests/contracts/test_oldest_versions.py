"""What pyproject.toml allows of the packages that requests pass through is what was tested at its oldest."""

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def versions(lines: list[str], sign: str) -> dict[str, str]:
    """Give the version behind a sign, of each package that has one."""
    found = (re.match(rf"([a-z0-9-]+){sign}([0-9.]+)", line) for line in lines)
    return {match[1]: match[2] for match in found if match is not None}


def test_the_oldest_versions_that_are_allowed_are_those_that_the_attacks_are_tried_with() -> None:
    oldest = versions((ROOT / "tests/security/oldest.txt").read_text().splitlines(), "==")
    allowed = versions(PROJECT["dependencies"], ">=")
    assert {"starlette", "fastapi", "uvicorn", "h11", "jinja2"} == oldest.keys()
    assert oldest == {name: allowed[name] for name in oldest}


def test_what_the_server_imports_is_asked_for_by_name() -> None:
    files = [*ROOT.glob("server/**/*.py"), *ROOT.glob("frontend/**/*.py")]
    imported = {name for file in files for name in imports(ast.parse(file.read_text()))}
    ours = {"firstdrift", "firstdrift_frontend", "firstdrift_server"}
    asked_for = {re.split("[^a-z0-9-]", line)[0].replace("-", "_") for line in PROJECT["dependencies"]}
    through_others = {"anyio", "markupsafe", "pydantic"}  # parts of starlette, jinja2 and pydantic-settings
    assert imported - ours - set(sys.stdlib_module_names) - through_others <= asked_for


def imports(module: ast.Module) -> set[str]:
    """Give the packages that a module imports, wherever it does."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found
