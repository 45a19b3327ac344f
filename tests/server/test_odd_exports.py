"""Names that would run in a spreadsheet, and numbers that are none: in every file and page as they are."""

import csv
import io
import json
import math
from collections.abc import Iterator
from html import unescape
from typing import Any

import openpyxl
import pytest
import yaml
from fastapi.testclient import TestClient
from library.dumps.msprobe_samples import tensor, write_dump
from openpyxl.utils.escape import unescape as of_cell
from soak import record
from working import ask_to_compare, wait_for_comparison, worker

from firstdrift.catalogue.engine import open_engine
from firstdrift.catalogue.migrate import upgrade
from firstdrift.catalogue.tables import JobState
from firstdrift_server.app import create_app
from firstdrift_server.settings import settings_from

STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%", "'", '"', ";")
"""What spreadsheets of today and of before take for the beginning of a formula, or look behind."""

COMMANDS = ("1+1", "cmd|' /C calc'!A0", 'HYPERLINK("http://example.org","click")')
PAYLOADS = [f"{start}{command}" for start in STARTS for command in COMMANDS]
NUMBERS = {"nan": math.nan, "up": math.inf, "down": -math.inf}
WORDS = {"NaN", "Infinity", "-Infinity"}
COLUMNS = ("firstdrift", "msit", "msprobe")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A server of one comparison, whose names are payloads and whose target has numbers that are none."""
    top = tmp_path_factory.mktemp("odd")
    for side in ("golden", "target"):
        data = {f"{name}.{at}.forward": node() for at, name in enumerate(PAYLOADS)}
        for name, number in NUMBERS.items():
            data[f"Functional.{name}.0.forward"] = node(
                **({"Max": number, "Norm": number} if side == "target" else {})
            )
            both = f"Functional.both_{name}.0.forward"
            data[both] = node(Max=number, Min=number, Mean=number, Norm=number)
        write_dump(top / "root" / side / "step0" / "rank0", data, dict.fromkeys(data))
    settings = settings_from(roots=[top / "root"], data_dir=top / "data")
    engine = open_engine(settings.database)
    upgrade(engine)
    made = ask_to_compare(engine, top / "root/golden", top / "root/target")
    with worker(settings.database):
        assert wait_for_comparison(engine, made).state is JobState.DONE
        with TestClient(create_app(settings), base_url="http://localhost") as client:
            yield client
    engine.dispose()


def node(**changes: float) -> dict[str, Any]:
    return {"input_args": [tensor()], "input_kwargs": {}, "output": [tensor(**changes)]}


def file_of(client: TestClient, written: str, columns: str = "firstdrift") -> bytes:
    answer = client.get(f"/c/1/export?format={written}&columns={columns}")
    assert answer.status_code == 200, answer.text
    return answer.content


def cells_of(client: TestClient, columns: str) -> tuple[list[str], list[Any]]:
    """Give the cells of the CSV file and of the sheets of the workbook."""
    text = file_of(client, "csv", columns).decode("utf-8-sig")
    book = openpyxl.load_workbook(io.BytesIO(file_of(client, "xlsx", columns)))
    sheets = [cell for sheet in book for row in sheet.iter_rows() for cell in row if cell.value is not None]
    return [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row], sheets


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def test_no_name_runs_in_a_spreadsheet_and_every_name_can_be_read(client: TestClient) -> None:
    seen = 0
    for columns in COLUMNS:
        of_csv, of_book = cells_of(client, columns)
        for cell in of_csv:
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) or is_number(cell), cell
        assert any(cell.startswith("'=1+1") for cell in of_csv), "a name begins a cell"
        assert {cell.data_type for cell in of_book} <= {"s", "n"}
        assert not any(cell.hyperlink for cell in of_book)
        texts = "\n".join(of_cell(str(cell.value)) for cell in of_book)
        for payload in PAYLOADS:
            assert any(payload in cell for cell in of_csv), (columns, payload)
            assert payload in texts.replace("_x000D_", "\r"), (columns, payload)
        seen += len(of_csv) + len(of_book)
    record(
        "exports",
        f"{len(PAYLOADS)} payloads as names, {seen:,} cells of CSV and XLSX: 0 formulas, all readable",
    )


def test_every_other_file_holds_every_name(client: TestClient) -> None:
    said = json.dumps(json.loads(file_of(client, "json")))
    assert said
    mapping = yaml.safe_load(file_of(client, "data_mapping"))
    names = {*mapping, *mapping.values()}
    for payload in PAYLOADS:
        assert any(payload in name for name in names), payload
    rows = client.get("/api/v1/comparisons/1/slices/0/rows?unfold=all&count=1000").json()["rows"]
    told = {name for row in rows for name in (*row["golden"], *row["target"])}
    for payload in PAYLOADS:
        assert any(payload in name for name in told), payload
    record("exports", f"all {len(PAYLOADS)} in JSON and mapping files, too")


def of(row: dict[str, Any]) -> list[str]:
    return [name for name in row["target"] if name.startswith("Functional.")]


def refused(constant: str) -> None:
    raise AssertionError(constant)


def test_numbers_that_are_none_arrive_everywhere(client: TestClient) -> None:
    for columns in COLUMNS:
        of_csv, of_book = cells_of(client, columns)
        lowered = {cell.lower().strip("' ") for cell in of_csv}
        assert {"nan"} <= lowered, columns
        assert lowered & {"infinity", "inf"}, columns
        assert lowered & {"-infinity", "-inf"}, columns
        kept = {str(cell.value).lower().strip() for cell in of_book}
        assert "nan" in kept, columns
        assert kept & {"infinity", "inf"}, columns
        assert kept & {"-infinity", "-inf"}, columns
    rows = client.get("/api/v1/comparisons/1/slices/0/rows?unfold=all&count=1000").json()["rows"]
    odd = [
        row
        for row in rows
        if any(name.split(".")[1].removeprefix("both_") in NUMBERS for name in row["target"])
    ]
    assert len(odd) == 2 * len(NUMBERS)
    found, asked = set[str](), 0
    for row in odd:
        address = f"/api/v1/comparisons/1/slices/0/rows/{row['row']}"
        answer = client.get(address)
        said = json.loads(answer.text, parse_constant=refused)
        asked += 1
        mine = {word for word in WORDS if f'"{word}"' in json.dumps(said)}
        assert mine, answer.text[:500]
        found |= mine
        page = unescape(client.get(f"/c/1/s/0/n/{row['row']}").text)
        assert any(word in page for word in ("NaN", "Infinity", "∞", "inf")), row
        asked += 1
    assert found == WORDS
    whole = json.loads(file_of(client, "json"), parse_constant=refused)
    assert whole["counts"]["pairs"] == 2 * (len(PAYLOADS) + 2 * len(NUMBERS))
    for written in ("html", "md"):
        assert "nan" in file_of(client, written).decode().lower()
    tables = 2 * len(COLUMNS)
    record("nan", f"NaN, ±infinity in {tables} tables, JSON, HTML, Markdown and {asked} pages: all there")
