"""The pictures of the page of rules: nodes on the scale of a slider, and the limit in it."""

import pytest
from fastapi.testclient import TestClient

from firstdrift_server.rules.pictures import MAIN, place_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3.0, 500),
        (30.0, 750),
        (0.3, 250),
        (300.0, 1000),
        (1e9, 1000),
        (1e-9, 0),
        (0.0, 0),
        (float("inf"), 1000),
    ],
)
def test_a_value_lies_where_its_slider_stands(value: float, expected: int) -> None:
    assert place_of(value, 3.0) == expected


def test_what_is_above_the_limit_becomes_less_when_the_limit_rises(client: TestClient) -> None:
    usual, raised = (
        client.get(f"/c/1/rules.json?{query}").json() for query in ("", "rules=firstdrift&floor=3200")
    )
    assert usual["pictures"].keys() == MAIN.keys()
    before, after = usual["pictures"]["floor"], raised["pictures"]["floor"]
    assert (before["at"], after["at"]) == (500, 1000)
    assert before["counts"] == after["counts"]
    assert before["total"] == sum(count for _, count in before["counts"]) > 0
    assert before["above"] > after["above"] == 0
    assert {bar["is_above"] for bar in after["bars"]} == {False}
    for picture in usual["pictures"].values():
        assert sum(bar["count"] for bar in picture["bars"]) == picture["total"]
        assert picture["above"] == sum(count for place, count in picture["counts"] if place > picture["at"])
