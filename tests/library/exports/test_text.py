"""The report in a terminal: no line is broken within a name."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from messages import says

from firstdrift import compare
from firstdrift.exports import text as terminal
from firstdrift.exports.text import folded, report_text
from firstdrift.wording.text import SOURCE, texts


def test_lines_are_folded_between_words_below_their_value() -> None:
    sentence = "Token 2 is the first bad token; in it a.very.long.name is bad."
    text = f"{sentence}\n\n  because     one two three four five six seven"
    assert folded(text, 40).split("\n") == [
        "Token 2 is the first bad token; in it",
        "a.very.long.name is bad.",
        "",
        "  because     one two three four five",
        "              six seven",
    ]
    assert folded("name" * 30, 40) == "name" * 30
    assert folded(text, 200) == text


def test_every_title_of_a_row_stands_in_the_catalogue() -> None:
    asked = r"""_(?:title|row|inner|finding_lines)\(["'](\w+)["']"""
    titles = set(re.findall(asked, Path(terminal.__file__).read_text("utf-8")))
    known = {id_.removeprefix("terminal.") for id_ in texts(SOURCE) if id_.startswith("terminal.")}
    assert titles | {"golden", "target"} == known


def test_a_terminal_gets_relative_errors_as_percentages(unpacked: Callable[[str], Path]) -> None:
    report = compare(*(unpacked(f"msit/{name}") for name in ("atb12_bf16", "atb12_bf16_bad")))
    assert re.search(r"relative_l2 \d[\d.]* %, cosine_similarity 0\.\d+,", report_text(report))


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_gets_lines_that_fit_it(unpacked: Callable[[str], Path], width: int) -> None:
    dumps = [unpacked(f"msit/{name}") for name in ("atb12_bf16", "atb12_bf16_bad")]
    command = [sys.executable, "-m", "firstdrift", "compare", *map(str, dumps), "--token", "2"]
    reading, writing = os.openpty()
    with os.fdopen(reading, "rb", buffering=0) as screen:
        done = subprocess.Popen(
            command, stdout=writing, stderr=subprocess.DEVNULL, env=os.environ | {"COLUMNS": str(width)}
        )
        os.close(writing)
        said = b""
        while piece := read(screen.fileno()):
            said += piece
        assert done.wait() == 1
    lines = said.decode().replace("\r\n", "\n").split("\n")
    assert says(" ".join(lines), "finding.first_token", "finding.only_token")
    long = [line for line in lines if len(line) > width]
    assert all(" " not in line.split(": ")[-1].strip() or "/" in line for line in long)
    assert not any(len(line) > width for line in lines[: lines.index("")])
    assert max(map(len, lines[: lines.index("")])) > width / 2


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # nobody writes to it any more
        return b""
