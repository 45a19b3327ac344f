"""What is kept at hand is made once, however many ask for it, and only so much of it is kept."""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock

import pytest

from firstdrift.recent import Recent

MANY = 8


class Made:
    """Counts how often something is made, by key; all ask at once."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self._all_have_asked = Barrier(MANY)
        self._lock = Lock()

    def ask(self, recent: Recent[str, str], key: str) -> str:
        self._all_have_asked.wait(10)
        return recent.get(key, lambda: self._make(key))

    def _make(self, key: str) -> str:
        with self._lock:
            self.keys.append(key)
        time.sleep(0.1)  # in which the others ask
        return key.upper()


def test_what_many_ask_for_at_once_is_made_once() -> None:
    recent, made = Recent[str, str](4), Made()
    with ThreadPoolExecutor(MANY) as threads:
        found = list(threads.map(lambda number: made.ask(recent, "ab"[number % 2]), range(MANY)))
    assert sorted(made.keys) == ["a", "b"]
    assert found == ["A", "B"] * (MANY // 2)


def test_what_could_not_be_made_is_tried_again() -> None:
    recent = Recent[str, str](4)

    def fails() -> str:
        raise OSError("gone")

    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            recent.get("a", fails)
    assert recent.get("a", lambda: "A") == "A"


def test_what_was_asked_for_last_is_kept_and_the_last_whatever_its_size() -> None:
    recent = Recent[str, str](4, len)
    for key in ("aa", "bb", "aa", "cc"):
        recent.get(key, lambda key=key: key)  # type: ignore[misc]
    assert recent.get("aa", lambda: "new") == "aa"
    assert recent.get("bb", lambda: "new") == "new"
    assert recent.get("large", lambda: "x" * 99) == "x" * 99
    assert recent.get("large", lambda: "new") == "x" * 99
    assert recent.get("aa", lambda: "new") == "new"
