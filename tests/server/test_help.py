"""The help page: what words mean, for everybody who can reach the server."""

import re
from html import unescape

import pytest
from fastapi.testclient import TestClient

from firstdrift.verdict.judgement import NodeClass, Verdict
from firstdrift.wording.text import LANGUAGES, texts
from firstdrift_frontend import TEMPLATES
from firstdrift_server.help.view import TERMS

HTML = {"accept": "text/html"}
ANCHORS = {f"term-{name}" for group in TERMS for name in group} | {"verdicts", "classes", "says", "keys"}


def test_every_verdict_class_and_term_is_explained(client: TestClient) -> None:
    known = client.get("/help.json").json()
    assert {one["name"] for one in known["verdicts"]} == {*map(str, Verdict), "unmatched"}
    assert {one["name"] for one in known["classes"]} >= set(map(str, NodeClass))
    page = unescape(client.get("/help", headers=HTML).text).replace("\N{NO-BREAK SPACE}", " ")
    for one in (*known["verdicts"], *known["classes"], *(term for group in known["terms"] for term in group)):
        said = one["meaning"]["text"]
        assert said[0].upper() + said[1:] in page


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_word_lacks_its_meaning(language: str) -> None:
    known = texts(language)
    for room in ("verdict", "node_class", "term"):
        meanings = {name.partition(".")[2] for name in known if name.startswith(f"{room}_meaning.")}
        words = {name.partition(".")[2] for name in known if name.startswith(f"{room}.")}
        assert meanings <= words
    assert {f"term.{name}" for group in TERMS for name in group} <= known.keys()


def test_every_mark_beside_a_term_leads_to_what_it_means(client: TestClient) -> None:
    page = client.get("/help", headers=HTML).text
    there = set(re.findall(r'id="([^"]+)"', page))
    assert there >= ANCHORS
    marked = [
        found
        for template in TEMPLATES.iterdir()
        for found in re.findall(r"parts\.question\('(\w+)'\)", template.read_text("utf-8"))
    ]
    assert len(marked) > 10
    leads = {{"verdict": "verdicts", "node_class": "classes"}.get(name, f"term-{name}") for name in marked}
    assert leads <= there


@pytest.mark.parametrize("address", ["/", "/new", "/board", "/no-such-page", "/help"])
def test_every_page_leads_to_it(client: TestClient, address: str) -> None:
    assert 'href="/help"' in client.get(address, headers=HTML).text
