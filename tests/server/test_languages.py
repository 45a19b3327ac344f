"""Pages in the language that was chosen, or that the browser asks for."""

import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest
from starlette.testclient import TestClient

from firstdrift.wording.message import Message
from firstdrift.wording.text import LANGUAGES, text_of, texts


def messages_in(value: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 (whatever JSON has)
    """Yield the messages anywhere in an answer."""
    if isinstance(value, dict):
        if value.keys() == {"id", "arguments", "text"}:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from messages_in(item)


def message_of(said: dict[str, Any]) -> Message:
    """Read a message back from an answer."""
    return Message.of(said["id"], **{name: _argument(value) for name, value in said["arguments"].items()})


def _argument(value: Any) -> Any:  # noqa: ANN401 (whatever JSON has)
    if isinstance(value, list):
        return tuple(map(_argument, value))
    return message_of(value) if isinstance(value, dict) else value


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("", "en"),
        ("de", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-US,en;q=0.9,zh;q=0.8", "en"),
        ("fr;q=0.9, zh-TW;q=0.5", "zh"),
        ("en;q=0.3, zh;q=x, zh;q=0.9", "zh"),
    ],
)
def test_a_page_speaks_what_the_browser_asks_for(client: TestClient, accepted: str, language: str) -> None:
    page = client.get("/", headers={"accept-language": accepted})
    assert f'<html lang="{language}">' in page.text
    assert ("跳到正文" in page.text) == (language == "zh")


def test_the_language_that_was_chosen_wins_and_is_kept(client: TestClient) -> None:
    back = client.post("/language", data={"language": "zh", "back": "/new?x=1"}, follow_redirects=False)
    assert (back.status_code, back.headers["location"]) == (HTTPStatus.SEE_OTHER, "/new?x=1")
    try:
        page = client.get("/", headers={"accept-language": "en"})
        assert '<html lang="zh">' in page.text
    finally:
        client.cookies.clear()


@pytest.mark.parametrize(
    ("chosen", "shown"),
    [("dark", ' data-theme="dark"'), ("light", ' data-theme="light"'), ('"><b>', ""), ("", "")],
)
def test_a_page_comes_in_the_theme_that_was_chosen(client: TestClient, chosen: str, shown: str) -> None:
    page = client.get("/", headers={"cookie": f"firstdrift_theme={chosen}", "accept-language": "en"})
    assert f'<html lang="en"{shown}>' in page.text


@pytest.mark.parametrize("back", ["//elsewhere.example", "/\\elsewhere.example", "https://elsewhere.example"])
def test_choosing_a_language_never_leads_elsewhere(client: TestClient, back: str) -> None:
    answer = client.post("/language", data={"language": "en", "back": back}, follow_redirects=False)
    client.cookies.clear()
    assert answer.headers["location"] == "/"


def test_a_language_that_there_is_not_is_refused(client: TestClient) -> None:
    answer = client.post("/language", data={"language": "tlh", "back": "/"})
    assert answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY
    assert not re.search("set-cookie", str(answer.headers))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("/c/x", "comparison 不是整数"),
        ("/?skip=-1", "skip 小于 0"),
        ("/?skip=9999999999", "skip 大于 1000000000"),
        ("/?show=nothing", "show 不是其中之一"),
        ("/c/1/s/0/match/nothing", "part 不是其中之一"),
        ("/c/1/s/0/tree?sort=none", "请选择 tree、execution、error、amplification"),
        ("/c/1/s/0/tree?q=(&regex=1", "不是正则表达式"),
        ("/c/1/s/0/tree?q=(?R)&regex=1", "请直接搜索文本"),
    ],
)
def test_what_is_wrong_with_an_address_is_said_in_every_language(
    client: TestClient, address: str, said: str
) -> None:
    page = client.get(address, headers={"accept-language": "zh", "accept": "text/html"}).text.lower()
    assert said in page
    assert "should be" not in page


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_a_script_asks_for_is_said_in_the_language_of_its_page(
    client: TestClient, language: str
) -> None:
    headers = {"accept-language": language}
    refused = client.get("/api/v1/comparisons/999", headers=headers).json()
    expected = text_of(Message.of("catalogue.no_comparison", comparison=999), language)
    assert refused["error"] == refused["message"]["text"] == expected
    answer = client.get("/api/v1/comparisons/2", headers=headers)
    assert "Accept-Language" in answer.headers["vary"]
    messages = list(messages_in(answer.json()))
    assert messages
    assert [said["text"] for said in messages] == [text_of(message_of(said), language) for said in messages]
    chart = client.get("/api/v1/comparisons/3/chart", headers=headers).json()["chart"]
    assert chart["y_title"]["text"] in texts(language).values()
    assert chart["traces"][0]["name"]["text"] == text_of(Message.of("slice.only"), language)


def test_data_are_in_english_where_nobody_asks_for_another_language(client: TestClient) -> None:
    refused = client.get("/api/v1/comparisons/999").json()
    assert refused["error"] == text_of(Message.of("catalogue.no_comparison", comparison=999))
