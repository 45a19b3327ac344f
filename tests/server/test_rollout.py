"""The pages that hold a rollout against a trainer, as data and as HTML."""

import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient
from library.rollout.rollout_rows import SAMPLES, row, write_rows

from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of
from firstdrift_server.app import create_app
from firstdrift_server.context import Context
from firstdrift_server.questions import rollout as questions
from firstdrift_server.settings import settings_from


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLES, tmp_path / "root")).resolve()


@pytest.fixture
def client(root: Path, tmp_path: Path) -> TestClient:
    settings = settings_from(roots=[root], data_dir=tmp_path / "data")
    return TestClient(create_app(settings), base_url="http://localhost")


def ask(client: TestClient, path: str = "/rollout", **given: object) -> Any:  # noqa: ANN401
    found = client.get(f"{path}.json?{urlencode(given)}")
    assert found.status_code == 200, found.text
    return found.json()


def test_without_files_there_is_the_form_and_what_can_be_chosen(client: TestClient) -> None:
    found = ask(client)
    assert found["answer"] is None
    assert "rollout.jsonl" in {one["name"] for one in found["choose"]["entries"]}
    page = client.get("/rollout")
    assert page.status_code == 200
    assert page.text.count('class="crumbs"') == 1


def test_the_answer_has_the_finding_and_the_map_the_worst_first(client: TestClient, root: Path) -> None:
    found = ask(client, rollout=root / "rollout.jsonl", trainer=root / "not_finite.jsonl")["answer"]
    assert found["verdict"] == "tokens off"
    assert found["finding"]["id"] == "rollout.summary.not_finite"
    assert found["heat_map"]["rows"][0]["name"] == "4"
    assert found["heat_map"]["cells"][0][30:] == ["Infinity"] * 18
    assert found["sequences"][0]["address"].startswith("/rollout/4?")


def test_a_sequence_has_its_tokens_and_the_way_to_the_operator(client: TestClient, root: Path) -> None:
    found = ask(client, "/rollout/2", rollout=root / "rollout.jsonl", trainer=root / "shifted.jsonl")
    assert (found["first_token"], found["length"], len(found["tokens"])) == (20, 48, 48)
    assert found["tokens"][20]["state"] == "out"
    assert found["command"].endswith("--token 20")
    assert found["new"] == "/new?token=20"


def test_experts_stand_beside_the_token_that_they_made_likely(client: TestClient, root: Path) -> None:
    found = ask(client, "/rollout/9", rollout=root / "rollout.jsonl", trainer=root / "trainer.jsonl")
    assert found["tokens"][6]["state"] == "other experts"
    assert found["other_experts"]["6"]


def test_a_long_sequence_is_shown_in_parts(client: TestClient, root: Path) -> None:
    file = write_rows(
        root / "long.jsonl", row([-1.0] * 1200, "rollout_log_probs", old_log_probs=[-1.0] * 1200)
    )
    first = ask(client, "/rollout/0", rollout=file)
    assert (first["before"], len(first["tokens"])) == (None, questions.MOST_TOKENS)
    second = client.get(first["behind"].replace("?", ".json?", 1)).json()
    assert [one["position"] for one in second["tokens"][:1]] == [500]


def test_what_was_answered_is_kept_until_a_file_changes(client: TestClient, root: Path) -> None:
    given = {"rollout": root / "rollout.jsonl", "trainer": root / "trainer.jsonl"}
    assert ask(client, **given)["answer"]["verdict"] == "within rounding"
    shutil.copy(root / "temperature.jsonl", root / "trainer.jsonl")
    assert ask(client, **given)["answer"]["verdict"] == "drifting"


def test_of_many_sequences_of_one_side_alone_some_are_listed_and_all_counted(
    client: TestClient, root: Path
) -> None:
    more = questions.MOST_SEQUENCES + 7
    ours = [row([-1.0, -2.0], id=number) for number in range(more + 1)]
    write_rows(root / "ours.jsonl", *ours)
    write_rows(root / "theirs.jsonl", ours[0])
    found = ask(client, rollout=root / "ours.jsonl", trainer=root / "theirs.jsonl")["answer"]
    assert len(found["unpaired"]["rollout"]) == questions.MOST_SEQUENCES
    assert found["counts"]["rollout_only"] == more


def test_files_are_listed_whatever_case_their_suffix_has(client: TestClient, root: Path) -> None:
    shutil.copy(root / "rollout.jsonl", root / "LAST.JSONL")
    assert "LAST.JSONL" in {one["name"] for one in ask(client)["choose"]["entries"]}


def test_while_the_second_file_is_looked_for_nothing_is_refused(client: TestClient, root: Path) -> None:
    found = ask(client, rollout=root / "rollout.jsonl", at=root)
    assert (found["problem"], found["answer"]) == (None, None)


def test_of_long_sequences_only_some_are_kept() -> None:
    kept = Context.__dataclass_fields__["rollouts"].default_factory()
    made: list[int] = []
    for number in (0, 1, 2, 0):
        kept.get(number, lambda at=number: made.append(at) or {"differences": [0.0] * 400_000})
    assert made == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"rollout": "/etc/passwd"}, 404),
        ({"rollout": "{root}/../secret.jsonl"}, 404),
        ({"rollout": "{root}/link.jsonl"}, 404),
        ({"rollout": "{root}/nothing.jsonl"}, 422),
        ({"rollout": "{root}/rollout.jsonl", "low": "x"}, 422),
        ({"rollout": "{root}/rollout.jsonl", "low": "2"}, 422),
        ({"rollout": "{root}/rollout.jsonl", "dtype": "int8"}, 422),
        ({"rollout": "{root}/rollout.jsonl"}, 422),
        ({"rollout": "\0"}, 404),
    ],
)
def test_what_cannot_be_compared_is_refused_on_the_page_and_as_data(
    client: TestClient, root: Path, given: dict[str, str], status: int
) -> None:
    write_rows(root.parent / "secret.jsonl", row([-1.0]))
    (root / "link.jsonl").symlink_to(root.parent / "secret.jsonl")
    asked = urlencode({name: text.replace("{root}", str(root)) for name, text in given.items()})
    page, data = client.get(f"/rollout?{asked}"), client.get(f"/rollout.json?{asked}")
    assert (page.status_code, data.status_code) == (status, status)
    assert "<form" in page.text
    assert data.json()["ok"] is False
    assert client.get(f"/rollout/0?{asked}").status_code == status


def test_a_form_without_files_says_what_is_missing(client: TestClient) -> None:
    page, data = client.get("/rollout?rollout=&trainer=&low=0.8"), client.get("/rollout.json?rollout=")
    assert (page.status_code, data.status_code) == (422, 422)
    assert text_of(Message.of("rollout.choose_rollout"))[1:] in page.text
    assert client.get("/rollout").status_code == 200


def test_differences_that_are_no_numbers_are_marked_in_the_chart(client: TestClient, root: Path) -> None:
    given = urlencode({"rollout": root / "rollout.jsonl", "trainer": root / "not_finite.jsonl"})
    found = client.get(f"/rollout/4.json?{given}").json()
    assert found["not_finite_at"] == list(range(30, 48))
    assert '"lost":[30,' in client.get(f"/rollout/4?{given}").text.replace(" ", "")


def test_a_sequence_that_is_not_there_is_not_found(client: TestClient, root: Path) -> None:
    given = urlencode({"rollout": root / "rollout.jsonl", "trainer": root / "trainer.jsonl"})
    assert client.get(f"/rollout/99?{given}").status_code == 404


def test_names_from_files_are_escaped(client: TestClient, root: Path) -> None:
    hostile = "</script><img src=x onerror=alert(1)>"
    both = row([-1.0], "rollout_log_probs", old_log_probs=[-2.0], id=hostile, uid=hostile)
    file = write_rows(root / "hostile.jsonl", both)
    for path in ("/rollout", "/rollout/0"):
        text = client.get(f"{path}?{urlencode({'rollout': file})}").text
        assert "<img" not in text
