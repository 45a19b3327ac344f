import re
from pathlib import Path

import click
import pytest

from firstdrift.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("docs/*.md")])
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@page
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@page
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert {first or second for first, second in named} <= TARGETS


@page
def test_every_command_and_option_that_is_named_exists(page: Path) -> None:
    for name, arguments in re.findall(
        r"(?:^|`|…)\s*firstdrift ([a-z]+)([^`\n]*)", page.read_text(encoding="utf-8"), re.MULTILINE
    ):
        command = main.commands.get(name)
        assert command, f"firstdrift {name}"
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"(?<=\s)--[a-z-]+", arguments)) <= known, f"firstdrift {name}{arguments}"


def test_every_command_is_documented_by_its_help() -> None:
    for command in main.commands.values():
        assert command.help
        options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
        assert [option.name for option in options if not (option.help or option.hidden)] == []
