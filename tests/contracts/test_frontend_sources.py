"""How the sources of the pages look, and that what is sent of them is what was written."""

import json
import posixpath
import re
from pathlib import Path

import pytest

from firstdrift_frontend import STATIC, TEMPLATES
from firstdrift_frontend.assets import VENDOR, asset, build, modules, plotly_build

FRONTEND = Path(__file__).resolve().parents[2] / "frontend"
ALL = {str(file.relative_to(STATIC)): file for file in sorted(STATIC.rglob("*.js"))}
SCRIPTS = {name: file for name, file in ALL.items() if not name.startswith(VENDOR)}
IMPORTED = re.compile(r'^(?:import|export)\b(?:[^";]*\bfrom)?\s*"([^"]+)";', re.MULTILINE)
SOURCES = {file.name: file for file in sorted([*TEMPLATES.iterdir(), *STATIC.glob("*.css")])} | SCRIPTS
LONGEST_MODULE = 300
WIDEST = 160


def imports(name: str) -> set[str]:
    found = IMPORTED.findall(SCRIPTS[name].read_text("utf-8"))
    return {posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) for path in found}


@pytest.mark.parametrize("name", SOURCES)
def test_no_line_has_to_be_scrolled_to_be_read(name: str) -> None:
    lines = enumerate(SOURCES[name].read_text("utf-8").splitlines(), start=1)
    assert [number for number, line in lines if len(line) > WIDEST] == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_module_is_short_and_named_for_what_it_is(name: str) -> None:
    assert len(SCRIPTS[name].read_text("utf-8").splitlines()) <= LONGEST_MODULE
    assert Path(name).stem not in {"util", "utils", "common", "helper", "helpers", "misc"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_module_imports_is_there_and_is_found_before_it_runs(name: str) -> None:
    assert imports(name) <= ALL.keys()
    assert imports(name) <= set(modules(name))


def test_modules_do_not_import_each_other_in_circles() -> None:
    done: set[str] = set()
    while ready := {name for name in SCRIPTS.keys() - done if imports(name) & SCRIPTS.keys() <= done}:
        done |= ready
    assert SCRIPTS.keys() - done == set()


def test_questions_to_the_server_are_asked_in_one_place() -> None:
    asking = {name for name, file in SCRIPTS.items() if re.search(r"\bfetch\(", file.read_text("utf-8"))}
    assert asking == {"lib/http.js"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_sent_without_its_comments_and_line_by_line_as_it_was_written(name: str) -> None:
    sent = asset(build(), name)
    assert sent is not None
    lines = sent.content.decode().split("\n")
    assert "/**" not in sent.content.decode()
    written = SCRIPTS[name].read_text("utf-8").split("\n")
    assert len(lines) == len(written)
    for line, source in zip(lines, written, strict=True):
        assert line.strip() in {"", source.strip(), re.sub(r"/\*\*.*?\*/ ?", "", source).strip()}
        # Else a part of a text would be left out with the comments.
        assert not any("/**" in text for text in re.findall(r'"[^"]*"|`[^`]*`', source))


@pytest.mark.parametrize("name", sorted(ALL.keys() - SCRIPTS.keys()))
def test_a_script_of_others_is_sent_as_it_is_with_its_licence_and_version_beside_it(name: str) -> None:
    sent = asset(build(), name)
    assert sent is not None
    assert sent.content == ALL[name].read_bytes()
    assert b"sourceMappingURL" not in sent.content
    folder = ALL[name].parent
    assert "Permission is hereby granted" in (folder / "LICENSE").read_text("utf-8")
    assert re.search(r"^# \w+ \d+\.\d+\.\d+$", (folder / "README.md").read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize(
    "name",
    [
        "../firstdrift_frontend/assets.py",
        "lib/../app.js",
        "lib",
        "lib/",
        "/app.js",
        "./app.js",
        "lib//http.js",
        "%2e%2e/x",
    ],
)
def test_only_what_lies_in_the_folder_is_sent_and_by_its_own_name_only(name: str) -> None:
    assert asset(build(), name) is None
    assert asset(plotly_build(), name) is None


def test_the_list_of_tools_names_no_place_to_fetch_them_from() -> None:
    lock = (FRONTEND / "package-lock.json").read_text("utf-8")
    assert "://" not in lock
    tools = {name: tool for name, tool in json.loads(lock)["packages"].items() if name}
    assert all(tool["integrity"].startswith("sha512-") and tool["dev"] for tool in tools.values())
