import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Where machines keep the work of people; paths inside a container image are not among them.
SOMEBODYS_DIRECTORY = re.compile(r"(?<![\w.:/-])/(?:home|root|Users|work|workspace|scratch|mnt)/\w+")
PACKAGE_INDEX = re.compile(
    r"pypi\.org|pythonhosted\.org|download\.pytorch\.org|registry\.npmjs\.org|--(?:extra-)?index-url|find-links"
    r"|https?://[\w.-]+(?::\d+)?/(?:simple|pypi|artifactory)\b"
)


def tracked_texts() -> Iterator[tuple[str, str]]:
    """Give the name and the text of every tracked file that is a text, but for this one."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, listing.split("\0")):
        file = ROOT / name
        if not file.is_file() or file == Path(__file__).resolve():
            continue
        content = file.read_bytes()
        if b"\0" not in content[:8192]:
            yield name, content.decode("utf-8")


def found(pattern: re.Pattern[str]) -> list[str]:
    return [f"{name}: {match[0]}" for name, text in tracked_texts() for match in pattern.finditer(text)]


def test_there_are_files_to_look_at() -> None:
    assert "pyproject.toml" in dict(tracked_texts())


def test_no_file_names_a_directory_of_somebodys_machine() -> None:
    assert found(SOMEBODYS_DIRECTORY) == []


def test_no_file_names_a_package_index() -> None:
    assert found(PACKAGE_INDEX) == []
