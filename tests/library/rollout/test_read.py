"""Files of log-probabilities, damaged and hostile ones too."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from library.rollout.rollout_rows import row, write_rows
from messages import ids_of

from firstdrift.errors import LimitError, RolloutUnreadableError, SettingsError
from firstdrift.rollout import read as reading
from firstdrift.rollout.read import read_side
from firstdrift.rollout.sources import files_of

GOOD = json.dumps(row([-1.0, -2.0])).encode() + b"\n"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param(b"{", "no_json", id="cut short"),
        pytest.param(b"\xff\xfe\x00", "no_json", id="no text"),
        pytest.param(b"[" * 200_000, "no_json", id="nested without end"),
        pytest.param(b"3", "not_an_object", id="a number"),
        pytest.param(b'{"logprobs": [1' + b"0" * 5000 + b"]}", "no_numbers", id="a number of 5,000 digits"),
        pytest.param(b'{"text": "nothing"}', "no_log_probs", id="another kind of row"),
    ],
)
def test_a_damaged_line_spoils_itself_alone(tmp_path: Path, line: bytes, reason: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(GOOD + line + b"\n" + GOOD)
    found = read_side(file, "rollout")
    assert [one.line for one in found.sequences] == [1, 3]
    (problem,) = found.problems
    assert (problem.file, problem.line) == ("a.jsonl", 2)
    assert ids_of(problem.reason)[0] in {f"rollout.row.{reason}", "rollout.row.no_json"}


def test_a_file_without_one_good_line_is_refused_with_the_first_reason(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"\n\n{]\n")
    with pytest.raises(RolloutUnreadableError) as refused:
        read_side(file, "rollout")
    assert refused.value.path == file
    assert ids_of(refused.value.message)[:2] == ("rollout.in_line", "rollout.row.no_json")
    assert refused.value.message.arguments["line"] == 3


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(RolloutUnreadableError) as refused:
        read_side(tmp_path / "a.jsonl", "rollout")
    assert refused.value.message.id == "rollout.empty"


def test_a_line_that_is_too_long_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_LINE", 200)
    file = tmp_path / "a.jsonl"
    file.write_bytes(GOOD + b'{"x": "' + b"y" * 1000 + b'"}\n' + GOOD)
    found = read_side(file, "rollout")
    assert [one.line for one in found.sequences] == [1, 3]
    assert [one.reason.id for one in found.problems] == ["rollout.row.long_line"]


@pytest.mark.parametrize(
    ("limit", "reason"),
    [("MOST_TOKENS", "many_tokens"), ("MOST_SEQUENCES", "many_sequences"), ("MOST_TEXT", "many_characters")],
)
def test_more_than_memory_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, reason: str
) -> None:
    monkeypatch.setattr(reading, limit, 3 if limit == "MOST_TOKENS" else 1)
    with pytest.raises(LimitError) as refused:
        read_side(
            write_rows(tmp_path / "a.jsonl", *(row([-1.0, -2.0], id=f"n{at}") for at in (0, 1))), "rollout"
        )
    assert refused.value.message.id == f"rollout.{reason}"


def test_numbers_are_read_as_python_writes_them(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"logprobs": [NaN, -Infinity, -1e-3]}\n')
    found = read_side(tmp_path / "a.jsonl", "rollout").sequences[0].log_probs
    assert np.array_equal(found, [np.nan, -np.inf, -1e-3], equal_nan=True)


def test_the_files_of_a_folder_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("10.jsonl", "9.jsonl", "notes.txt"):
        write_rows(tmp_path / name, row([-1.0]))
    assert [file.name for file in files_of(tmp_path)] == ["9.jsonl", "10.jsonl"]
    assert read_side(tmp_path, "rollout").files == 2


def test_a_folder_without_such_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RolloutUnreadableError) as refused:
        read_side(tmp_path, "rollout")
    assert refused.value.message.id == "rollout.no_files"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(RolloutUnreadableError) as refused:
        read_side(tmp_path / "a.jsonl", "rollout")
    assert "files.not_regular" in ids_of(refused.value.message)


def test_a_link_out_of_the_roots_is_not_followed(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    root.mkdir()
    write_rows(outside / "secret.jsonl", row([-1.0]))
    (root / "a.jsonl").symlink_to(outside / "secret.jsonl")
    with pytest.raises(RolloutUnreadableError) as refused:
        read_side(root / "a.jsonl", "rollout", within=[root])
    assert "files.leads_out" in ids_of(refused.value.message)


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and so on")
    with pytest.raises(SettingsError) as refused:
        read_side(tmp_path / "a.parquet", "rollout")
    assert refused.value.message.id == "rollout.no_parquet"
    assert refused.value.advice is not None


def test_parquet_is_read_as_json_lines_are(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [row([-1.0, None, -2.0], uid=str(number), routed_experts=[[[1, 2]]] * 3) for number in range(20)]
    write_rows(tmp_path / "a.jsonl", *rows)
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    ours, theirs = (read_side(tmp_path / f"a.{kind}", "rollout") for kind in ("parquet", "jsonl"))
    assert len(ours.sequences) == 20
    for one, other in zip(ours.sequences, theirs.sequences, strict=True):
        assert (one.names, one.line, one.field) == (other.names, other.line, other.field)
        for name in ("tokens", "missing", "counts", "experts"):
            assert (getattr(one, name) == getattr(other, name)).all()
        assert one.log_probs[[0, 2]].tolist() == [-1.0, -2.0]


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9])
def test_damaged_parquet_is_refused_by_name(tmp_path: Path, keep: float) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([row([-1.0])]), file)
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(RolloutUnreadableError) as refused:
        read_side(file, "rollout")
    assert refused.value.path == file
    assert "rollout.row.no_parquet_file" in ids_of(refused.value.message)
