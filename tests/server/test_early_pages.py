"""What is promised of a page that is begun before all of it is known: who waits sees it whole, or why not."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of
from firstdrift_server.app import create_app
from firstdrift_server.settings import settings_from
from firstdrift_server.tree import view as tree

PAGE = "/c/2/s/0/tree?row=3"
TRY = text_of(Message.of("server.try_again_or_check"))
FAILED = text_of(Message.of("catalogue.database.failed", why="no such table: row_blocks"))
WITHOUT_ROWS = {
    "en": (FAILED[:1].upper() + FAILED[1:], TRY, f'class="button primary" href="{PAGE}">'),
    "zh": (
        "数据库出错",
        "no such table: row_blocks",
        "在服务器上运行 firstdrift check 可查看问题所在",
        f'href="{PAGE}">重试</a>',
    ),
}
FAULT = {
    "en": (text_of(Message.of("server.fault"))[1:], text_of(Message.of("server.report_fault"))),
    "zh": ("此处出错", "这是 firstdrift 的故障"),
}


@pytest.fixture
def data(tmp_path: Path, catalogue: Path) -> Path:
    shutil.copy(catalogue, tmp_path)
    return tmp_path


@pytest.fixture
def client(data: Path, dumps: Mapping[str, tuple[Path, Path]]) -> Iterator[TestClient]:
    settings = settings_from(roots=[dump for pair in dumps.values() for dump in pair], data_dir=data)
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        yield client


def after_the_head(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen when it is known that the page is there, before any of it is written."""
    find = tree.find_tree_page

    def find_and_wait(*asked: Any) -> object:  # noqa: ANN401 (whatever is asked)
        found = find(*asked)
        happens()
        return found

    monkeypatch.setattr(tree, "find_tree_page", find_and_wait)


def read(client: TestClient, language: str) -> str:
    headers = {"accept": "text/html", "accept-language": language}
    with client.stream("GET", PAGE, headers=headers) as answer:
        assert answer.status_code == 200  # the head was sent when all was well
        answer.read()
    return answer.text


def is_whole(text: str) -> bool:
    return text.count("<!doctype html>") == text.count("</html>") == 1 and text.rstrip().endswith("</html>")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_database_that_goes_away_meanwhile_is_said_to_have_gone_and_what_to_try(
    client: TestClient, data: Path, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 'id="tree-body"' in read(client, language)

    def lose_the_rows() -> None:
        with closing(sqlite3.connect(data / "firstdrift.db")) as other:
            other.execute("DROP TABLE IF EXISTS row_blocks")

    after_the_head(monkeypatch, lose_the_rows)
    text = read(client, language)
    assert is_whole(text)
    assert 'id="tree-body"' not in text
    for said in WITHOUT_ROWS[language]:
        assert said in text
    answer = client.get(PAGE, headers={"accept": "application/json"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["hint"] == TRY


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("encoding", ["gzip", "identity"])
def test_a_fault_meanwhile_leaves_no_empty_page(
    client: TestClient, language: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.headers["accept-encoding"] = encoding

    def fail(*_asked: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(tree, "tree_view", fail)
    text = read(client, language)
    assert is_whole(text)
    for said in FAULT[language]:
        assert said in text
