"""Files are asked for before they are read; whatever is wrong with them is told by who reads them."""

import os
from pathlib import Path

import psutil
import pytest

from firstdrift.dumps.storage.ahead import ask_for


def test_whatever_lies_there_is_asked_for_and_no_error_arises(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"some")
    os.mkfifo(tmp_path / "pipe")
    before = psutil.Process().num_fds()
    ask_for([tmp_path / "file", tmp_path / "pipe", tmp_path / "none", tmp_path])
    assert psutil.Process().num_fds() == before


def test_where_the_system_cannot_be_asked_nothing_happens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    ask_for([tmp_path / "none"])
