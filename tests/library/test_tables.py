"""The TOML files that firstdrift comes with are parsed once, and again as soon as they are others."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from firstdrift import tables
from firstdrift.tables import tables_of

OWN = sorted(Path(tables.__file__).parent.rglob("*.toml"))


@pytest.mark.parametrize("file", OWN, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_table_is_what_its_file_says(file: Path) -> None:
    assert tables_of(file) == tomllib.loads(file.read_text("utf-8"))


def test_a_file_is_parsed_once_and_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file, parsed = tmp_path / "words.toml", list[str]()
    loads = tomllib.loads
    monkeypatch.setattr(tomllib, "loads", lambda text: parsed.append(text) or loads(text))
    file.write_text('[a]\nb = "c"\n')
    assert tables_of(file) == tables_of(file) == {"a": {"b": "c"}}
    assert len(parsed) == 1
    file.write_text('[a]\nb = "other"\n')
    assert tables_of(file) == {"a": {"b": "other"}}
    assert len(parsed) == 2


def test_what_is_no_toml_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "words.toml"
    file.write_text("[a\n")
    with pytest.raises(tomllib.TOMLDecodeError):
        tables_of(file)


def test_all_of_them_can_be_kept_at_once() -> None:
    done = subprocess.run([sys.executable, "-m", "firstdrift.tables"], capture_output=True, check=True)
    assert OWN
    assert not done.stdout + done.stderr
