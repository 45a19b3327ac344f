import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click
import pytest
from soak import record

from firstdrift.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("docs/*.md")])
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def links_of(page: Path) -> list[str]:
    """List the files that a page links to."""
    return re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8"))


def targets_of(page: Path) -> set[str]:
    """Return the targets of `make` that a page names."""
    named = re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {first or second for first, second in named}


def commands_of(page: Path) -> list[tuple[str, str]]:
    """List the commands that a page names, with what follows them."""
    named = r"(?:^|`|…)\s*firstdrift ([a-z]+)([^`\n]*)"
    return re.findall(named, page.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("found_on", "least"), [(links_of, 20), (targets_of, 5), (commands_of, 20)])
def test_the_pages_name_what_is_looked_for(found_on: Callable[[Path], Collection[Any]], least: int) -> None:
    found = sum(len(found_on(page)) for page in PAGES)
    assert found >= least
    what = {links_of: "links to files", targets_of: "targets of make", commands_of: "commands"}[found_on]
    record("docs", f"{found} {what} on {len(PAGES)} pages, each of which is there")


@page
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    assert [link for link in links_of(page) if not (page.parent / link).exists()] == []


@page
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    assert targets_of(page) <= TARGETS


@page
def test_every_command_and_option_that_is_named_exists(page: Path) -> None:
    for name, arguments in commands_of(page):
        command = main.commands.get(name)
        if isinstance(command, click.Group):  # one of its own commands is named, or it by itself
            named = re.match(r"\s+([a-z]+)", arguments)
            command = command.commands.get(named[1]) if named else command
        assert command, f"firstdrift {name}{arguments}"
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"(?<=\s)--[a-z-]+", arguments)) <= known, f"firstdrift {name}{arguments}"


def test_every_command_is_documented_by_its_help() -> None:
    assert main.commands
    groups = [command for command in main.commands.values() if isinstance(command, click.Group)]
    for command in (*main.commands.values(), *(one for group in groups for one in group.commands.values())):
        assert command.help
        options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
        assert [option.name for option in options if not (option.help or option.hidden)] == []
