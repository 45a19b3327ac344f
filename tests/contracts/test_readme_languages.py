"""README says the same in every language."""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENGLISH = ROOT / "README.md"
OTHERS = sorted(ROOT.glob("README.*.md"))
other = pytest.mark.parametrize("other", OTHERS, ids=lambda page: page.name)


def blocks(page: Path) -> list[str]:
    """Return the code blocks of a page, without comments."""
    found = re.findall(r"^```.*?^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [re.sub(r"\s+# .*", "", block) for block in found]


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@other
def test_every_language_has_the_same_commands(other: Path) -> None:
    assert blocks(other) == blocks(ENGLISH)
    code = [Counter(re.findall(r"`([^`]+)`", prose(page))) for page in (other, ENGLISH)]
    assert code[0] == code[1]


@other
def test_every_language_has_the_same_parts(other: Path) -> None:
    for part in (r"^#+(?= )", r"^!\[[^\]]*\]\(([^)]+)\)", r"^(?:\|[^|\n]*)+\|$", r"^\*\*\d\."):
        found = [re.findall(part, prose(page), re.MULTILINE) for page in (other, ENGLISH)]
        assert len(found[0]) == len(found[1]) > 0, part
    own = {page.name for page in (ENGLISH, *OTHERS)}
    links = [set(re.findall(r"(?<!!)\[[^\]]*\]\(([^)]+)\)", prose(page))) for page in (other, ENGLISH)]
    assert links[0] - own == links[1] - own


@other
def test_every_language_leads_to_the_others(other: Path) -> None:
    assert f"]({ENGLISH.name})" in prose(other).partition("## ")[0]
    assert f"]({other.name})" in prose(ENGLISH).partition("## ")[0]
