"""A comparison as files: what other tools' readers read, whole, and safe to open."""

import csv
import io
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from html import unescape
from pathlib import Path
from typing import Any, cast
from zipfile import ZipFile

import child_questions
import openpyxl
import pandas as pd
import psutil
import pytest
import yaml
from fastapi.testclient import TestClient
from half_taken import taken

from firstdrift import compare
from firstdrift.comparison.table import COLUMNS
from firstdrift.exports.spreadsheets import write_csv
from firstdrift.exports.tool_tables import MSIT_COLUMNS, MSPROBE_COLUMNS
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.processes.writers import Writers, Written
from firstdrift_server.context import WRITTEN_AT_ONCE, Context
from firstdrift_server.export import view as exports
from firstdrift_server.export.wanted import Wanted
from firstdrift_server.export.written import pieces_of

PERTURBED, RENAMED, TOKENS, DAMAGED = 1, 2, 3, 4


def table(client: TestClient, comparison: int, columns: str, written: str = "csv") -> pd.DataFrame:
    answer = client.get(f"/c/{comparison}/export?format={written}&columns={columns}")
    assert answer.status_code == 200, answer.text
    assert "attachment" in answer.headers["content-disposition"]
    kept = {"keep_default_na": False, "na_values": []}
    content = io.BytesIO(answer.content)
    if written == "csv":
        return pd.read_csv(content, **kept)
    sheets = pd.read_excel(content, sheet_name=None, **kept)
    sheets.pop("Summary", None)
    whole = pd.concat([sheet for sheet in sheets.values() if len(sheet)])
    return whole.sort_values("data_id", ignore_index=True) if columns == "msit" else whole


@pytest.mark.parametrize(("name", "comparison"), [("perturbed", PERTURBED), ("damaged", DAMAGED)])
def test_the_catalogue_writes_the_table_that_the_command_writes(
    client: TestClient,
    dumps: Mapping[str, tuple[Path, Path]],
    tmp_path: Path,
    name: str,
    comparison: int,
) -> None:
    write_csv(compare(*dumps[name]), tmp_path / "pairs.csv")
    with (tmp_path / "pairs.csv").open(encoding="utf-8", newline="") as stream:
        expected = list(csv.reader(stream))
    answer = client.get(f"/api/v1/comparisons/{comparison}/export?format=csv")
    found = list(csv.reader(io.StringIO(answer.text, newline="")))
    assert tuple(found[0]) == COLUMNS
    assert found == expected


@pytest.mark.parametrize("columns", ["firstdrift", "msit", "msprobe"])
def test_a_workbook_holds_what_the_csv_file_holds(client: TestClient, columns: str) -> None:
    text, sheet = (table(client, RENAMED, columns, written) for written in ("csv", "xlsx"))
    assert list(text.columns) == list(sheet.columns)
    assert len(text) == len(sheet) > 50
    for column in text.columns:
        for one, other in zip(text[column], sheet[column], strict=True):
            assert str(one).removeprefix("'") == str(other) or float(one) == pytest.approx(float(other))


def test_msprobe_s_columns_of_statistics(client: TestClient) -> None:
    found = table(client, PERTURBED, "msprobe")
    assert tuple(found.columns) == MSPROBE_COLUMNS[MeasurementKind.STATISTICS]
    assert found.columns[:2].tolist() == ["NPU Name", "Bench Name"]
    rows = found[found["Result"] != "unmatched"]
    assert rows["NPU Name"].str.contains(r"\.(?:input|output|parameters)\.|\.backward|grad").all()
    for _, row in rows.iterrows():
        if row["NPU max"] == row["Bench max"]:
            assert (float(row["Max diff"]), row["MaxRelativeErr"]) == (0, "0")
        elif "N/A" not in (row["NPU max"], row["Bench max"]):
            npu, bench = float(row["NPU max"]), float(row["Bench max"])
            assert float(row["Max diff"]) == pytest.approx(npu - bench)
            if bench:
                relative = float(row["MaxRelativeErr"].removesuffix("%"))
                assert relative == pytest.approx(abs((npu - bench) / bench * 100))
    counts = client.get(f"/api/v1/comparisons/{PERTURBED}").json()["counts"]
    told = rows["Result"].value_counts().to_dict()
    assert told.get("pass", 0) == counts["pass"]
    assert told.get("error", 0) == counts["error"]


def test_msprobe_s_and_msit_s_columns_of_data(client: TestClient) -> None:
    own, npu, mine = (table(client, TOKENS, columns) for columns in ("firstdrift", "msprobe", "msit"))
    assert tuple(npu.columns) == MSPROBE_COLUMNS[MeasurementKind.DATA]
    assert tuple(mine.columns) == MSIT_COLUMNS
    assert len(own) == len(npu) == len(mine)
    pairs = (own["verdict"] != "unmatched") & (own["cosine_similarity"] != "")
    assert pairs.sum() > 100
    for theirs, column in ((npu, "Cosine"), (mine, "cosine_similarity")):
        assert (
            theirs[column][pairs].astype(float).tolist()
            == own["cosine_similarity"][pairs].astype(float).tolist()
        )
    l2 = mine["relative_euclidean_distance"][pairs].astype(float)
    assert l2.tolist() == own["relative_l2"][pairs].astype(float).tolist()
    assert mine["token_id"].tolist() == own["token"].tolist()
    assert mine["data_id"].tolist() == list(range(len(mine)))
    with_files = mine[mine["my_data_path"].str.endswith(".pth")]
    assert with_files["my_data_path"].map(lambda path: Path(path).is_file()).all()
    assert npu["NPU Dtype"][pairs].str.startswith("torch.").all()


def test_what_has_no_partner_is_in_every_table(client: TestClient) -> None:
    counts = client.get(f"/api/v1/comparisons/{RENAMED}").json()["counts"]
    left = sum(number for name, number in counts.items() if name.startswith("unmatched_"))
    own, npu, mine = (table(client, RENAMED, columns) for columns in ("firstdrift", "msprobe", "msit"))
    assert (own["verdict"] == "unmatched").sum() <= left
    assert (npu["Result"] == "unmatched").sum() == (own["verdict"] == "unmatched").sum()
    assert mine["cmp_fail_reason"].str.startswith("only ").sum() == (own["verdict"] == "unmatched").sum()


def test_a_report_is_one_page_that_asks_for_nothing(client: TestClient) -> None:
    for comparison in (PERTURBED, RENAMED, TOKENS, DAMAGED):
        answer = client.get(f"/c/{comparison}/export?format=html")
        assert answer.headers["content-disposition"] == f'attachment; filename="comparison-{comparison}.html"'
        page = re.sub("<style>.*?</style>", "", answer.text, flags=re.DOTALL)
        assert "url(" not in answer.text
        assert "@import" not in answer.text
        assert len(answer.content) < 2_000_000
        assert "<script" not in page
        assert not re.findall(r"""(?:src|href|action)\s*=\s*["'](?!#|data:)""", page)
        assert 'id="worst-title"' in page
    said = client.get(f"/api/v1/comparisons/{TOKENS}").json()["summary"]["text"]
    page = client.get(f"/c/{TOKENS}/export?format=html").text
    assert re.sub("<[^>]+>", "", said) in unescape(page)
    assert 'class="map-picture"' in page


def test_a_report_is_in_the_language_of_the_visitor(client: TestClient) -> None:
    page = client.get(f"/c/{PERTURBED}/export?format=html", headers={"accept-language": "zh-CN"}).text
    assert '<html lang="zh">' in page


def test_notes_are_in_reports(client: TestClient) -> None:
    note = {"author": "Li <b>", "text": "see | run 12\n*now*"}
    place = f"/api/v1/comparisons/{TOKENS}/slices/0/rows/1/notes"
    assert client.post(place, json=note).status_code == 201
    assert "Li &lt;b&gt;" in client.get(f"/c/{TOKENS}/export?format=html").text
    markdown = client.get(f"/c/{TOKENS}/export?format=md").text
    assert "see \\| run 12 \\*now\\*" in markdown
    assert client.get(f"/c/{TOKENS}/export?format=json").json()["node_notes"][0]["text"] == note["text"]


def test_json_is_what_the_api_says(client: TestClient) -> None:
    exported = client.get(f"/c/{PERTURBED}/export?format=json").json()
    assert exported.pop("node_notes") == []
    assert exported == client.get(f"/api/v1/comparisons/{PERTURBED}").json()


def test_mappings_are_mappings(client: TestClient) -> None:
    for name in ("layer_mapping", "data_mapping"):
        answer = client.get(f"/c/{RENAMED}/export?format={name}")
        assert isinstance(yaml.safe_load(answer.text), dict)
        assert answer.headers["content-disposition"].endswith(f'-{name.replace("_", "-")}.yaml"')
    assert yaml.safe_load(client.get(f"/c/{RENAMED}/export?format=view_mapping").text) == {}


def test_no_cell_of_any_table_is_a_formula(client: TestClient) -> None:
    for columns in ("firstdrift", "msit", "msprobe"):
        answer = client.get(f"/c/{PERTURBED}/export?columns={columns}")
        cells = (cell for row in csv.reader(io.StringIO(answer.text, newline="")) for cell in row)
        for cell in cells:
            assert not cell.startswith(("=", "+", "@")), cell
            assert not cell.startswith("-") or is_number(cell), cell
        book = openpyxl.load_workbook(
            io.BytesIO(client.get(f"/c/{PERTURBED}/export?format=xlsx&columns={columns}").content)
        )
        kinds = {cell.data_type for row in book.active.iter_rows() for cell in row if cell.value is not None}
        assert kinds == {"s", "n"}


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("asked", ["format=exe", "columns=other"])
def test_what_cannot_be_written_is_refused(client: TestClient, asked: str) -> None:
    assert client.get(f"/c/{PERTURBED}/export?{asked}").status_code == 422
    assert client.get("/c/999/export").status_code == 404


@pytest.fixture
def writers(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The processes that were started to write files, by their numbers."""
    started: list[int] = []
    begin = Writers.begin

    def begun(*asked: Any, **named: Any) -> Written:  # noqa: ANN401
        written = begin(*asked, **named)
        started.append(cast("int", written.process))
        return written

    monkeypatch.setattr(Writers, "begin", begun)
    yield started
    assert not any(map(psutil.pid_exists, started))
    assert not any(one.is_at_work for one in context_of(client).writers._at_work)


def context_of(client: TestClient) -> Context:
    context: Context = cast("Any", client.app).state.context
    return context


@pytest.mark.parametrize("written", ["csv", "xlsx", "html", "data_mapping"])
def test_every_file_is_written_by_a_process_of_its_own(
    client: TestClient, writers: list[int], written: str
) -> None:
    for count in (1, 2):
        assert client.get(f"/c/{PERTURBED}/export?format={written}").status_code == 200
        assert len(set(writers)) == count
    assert os.getpid() not in writers


@pytest.mark.parametrize("leaves", [True, False], ids=["goes away", "takes nothing any more"])
@pytest.mark.parametrize("written", ["csv", "xlsx"])
def test_whoever_does_not_take_the_whole_table_leaves_no_writer_behind(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, writers: list[int], written: str, leaves: bool
) -> None:
    monkeypatch.setattr(exports, "STALLED_SECONDS", 0.2)
    path = f"/c/{PERTURBED}/export?format={written}"
    for count in range(1, WRITTEN_AT_ONCE + 2):
        messages = taken(cast("Any", client.app), path, 2, leaves=leaves)
        assert [message["type"] for message in messages] == ["http.response.start", "http.response.body"]
        assert len(writers) == count


def test_pages_are_answered_while_a_file_is_written_and_another_file_is_refused_beyond_some(
    client: TestClient, writers: list[int], tmp_path: Path
) -> None:
    begin = context_of(client).writers.begin
    with ExitStack() as held:
        for _ in range(WRITTEN_AT_ONCE):
            held.enter_context(begin(child_questions.pieces_for_ever, tmp_path / "told"))
        assert all(map(psutil.pid_exists, writers))
        assert client.get(f"/c/{PERTURBED}").status_code == 200
        for language, said in (("en", "4 files are being written already"), ("zh", "已有 4 个文件正在写出")):
            told = {"accept-language": language, "accept": "text/html"}
            refused = client.get(f"/c/{PERTURBED}/export?format=csv", headers=told)
            assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
            assert said in refused.text
    assert client.get(f"/c/{PERTURBED}/export?format=csv").status_code == 200


@pytest.mark.parametrize("written", ["csv", "xlsx"])
def test_a_table_is_the_same_packed_and_not(client: TestClient, written: str) -> None:
    path = f"/c/{PERTURBED}/export?format={written}"
    plain, packed = (client.get(path, headers={"accept-encoding": kind}) for kind in ("identity", "gzip"))
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert plain.headers["vary"] == packed.headers["vary"] == "Accept-Encoding"
    assert parts(plain.content, written) == parts(packed.content, written)


def parts(content: bytes, written: str) -> list[bytes]:
    """Take apart what was downloaded; a workbook says when it was made."""
    if written == "csv":
        return [content]
    book = ZipFile(io.BytesIO(content))
    return [book.read(name) for name in book.namelist() if not name.startswith("docProps")]


def test_what_is_wrong_with_the_database_is_told_in_place_of_a_file(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(_: Context, wanted: Wanted) -> Written:
        return context_of(client).writers.begin(pieces_of, f"sqlite:///{tmp_path / 'empty.db'}", wanted)

    monkeypatch.setattr(Context, "write_out", elsewhere)
    answer = client.get(f"/c/{PERTURBED}/export?format=csv")
    assert answer.status_code == 503
    assert "no such table" in answer.text


def test_a_table_that_cannot_be_written_to_its_end_is_not_taken_for_a_whole_one(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Context, __: Wanted) -> Written:
        return context_of(client).writers.begin(
            child_questions.pieces_and_a_mistake, ValueError("of ours"), 9
        )

    monkeypatch.setattr(Context, "write_out", broken)
    with pytest.raises(ValueError, match="of ours"):
        client.get(f"/c/{PERTURBED}/export?format=csv", headers={"accept-encoding": "identity"})
