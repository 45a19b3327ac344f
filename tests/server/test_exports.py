"""A comparison as files: what other tools' readers read, whole, and safe to open."""

import csv
import gc
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import openpyxl
import pandas as pd
import pytest
import yaml
from fastapi.testclient import TestClient
from half_taken import taken

from firstdrift import compare
from firstdrift.catalogue.comparisons import export_rows as lines
from firstdrift.catalogue.comparisons.export_rows import stored_lines
from firstdrift.comparison.table import COLUMNS, Line
from firstdrift.exports import workbook
from firstdrift.exports.spreadsheets import write_csv
from firstdrift.exports.tool_tables import MSIT_COLUMNS, MSPROBE_COLUMNS
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift_server.export import view as exports

PERTURBED, RENAMED, TOKENS, DAMAGED = 1, 2, 3, 4


def table(client: TestClient, comparison: int, columns: str, written: str = "csv") -> pd.DataFrame:
    answer = client.get(f"/c/{comparison}/export?format={written}&columns={columns}")
    assert answer.status_code == 200, answer.text
    assert "attachment" in answer.headers["content-disposition"]
    kept = {"keep_default_na": False, "na_values": []}
    content = io.BytesIO(answer.content)
    if written == "csv":
        return pd.read_csv(content, **kept)
    sheets = pd.read_excel(content, sheet_name=None, **kept).values()
    whole = pd.concat([sheet for sheet in sheets if len(sheet)])
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
    assert re.sub("<[^>]+>", "", said) in page
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


@pytest.mark.parametrize("leaves", [True, False], ids=["goes away", "takes nothing any more"])
@pytest.mark.parametrize("written", ["csv", "xlsx"])
def test_whoever_does_not_take_the_whole_table_leaves_no_view_of_the_database_behind(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, written: str, leaves: bool
) -> None:
    app: Any = client.app
    pool = app.state.context.engine.pool
    monkeypatch.setattr(exports, "STALLED_SECONDS", 0.2)
    before = pool.checkedout()
    gc.disable()
    try:
        path = f"/c/{PERTURBED}/export?format={written}"
        for _ in range(5):
            messages = taken(app, path, 2, leaves=leaves)
            assert [message["type"] for message in messages] == ["http.response.start", "http.response.body"]
            assert pool.checkedout() <= before
    finally:
        gc.enable()


def test_a_workbook_that_nobody_waits_for_any_more_is_not_finished(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    def counted(*asked: Any) -> Iterator[Line]:  # noqa: ANN401
        for line in stored_lines(*asked):
            read.append(line)
            yield line

    monkeypatch.setattr(workbook, "BEAT", 10)
    monkeypatch.setattr(lines, "stored_lines", counted)
    path = f"/c/{PERTURBED}/export?format=xlsx"
    assert client.get(path).status_code == 200
    every = len(read)
    read.clear()
    taken(cast("Any", client.app), path, 2, leaves=True)
    assert 0 < len(read) < every / 2
