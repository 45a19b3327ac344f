from firstdrift.groups import alone, grouped, known, positions

WORDS = ["mlp", "norm", "act", "add"]


def test_items_of_one_key_stay_in_their_order() -> None:
    assert grouped(WORDS, len) == {3: ["mlp", "act", "add"], 4: ["norm"]}
    assert list(grouped(reversed(WORDS), len)) == [3, 4]


def test_what_shares_its_key_is_not_alone() -> None:
    assert alone(WORDS, len) == {4: "norm"}


def test_of_equal_items_the_last_one_is_found() -> None:
    assert positions("abca") == {"a": 3, "b": 1, "c": 2}


def test_only_none_is_unknown() -> None:
    assert known([0, None, "", 0.0]) == [0, "", 0.0]
