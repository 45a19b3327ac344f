"""A regular expression finds names, or is refused: none takes the memory or the time of a server."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import refuses

from firstdrift.catalogue.comparisons import patterns
from firstdrift.catalogue.comparisons.patterns import LONGEST, names_matching
from firstdrift.errors import SettingsError

NAMES = ("model.layers.0.mlp.up_proj", "model.layers.1.mlp.down_proj", "model.norm")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"layers\.\d", [0, 1]),
        ("NORM$", [2]),
        ("(?i)Mlp", [0, 1]),
        (r"^(?:model)\.(?P<rest>n|l)(?=o)", [2]),
        (r"(?<=\.)(?<!mlp\.)n", [2]),
        (r"l{1}\w{3,9}\.1", [1]),
        (r"model\(?R?", [0, 1, 2]),
        (r"(?:\w{1,40}\.){4}", [0, 1]),
        ("no such name", []),
    ],
)
def test_names_are_found(pattern: str, found: list[int]) -> None:
    assert names_matching(pattern, enumerate(NAMES)).tolist() == found


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(mlp", "invalid"),
        ("(" * 400 + "a" + ")" * 400, "nested"),
        ("(?:(?:(?:a?){60000}){60000}){60000}b", "repeats"),
        ("(?:(?:.?){900}){900}!", "repeats"),
        ("(?:a?){,60000}(?:a?){3,60000}", "repeats"),
        ("a{%s}" % ("9" * 600), "repeats"),
        ("(?R)", "unknown_group"),
        (r"\\(?R)", "unknown_group"),
        ("(a|(?R))+", "unknown_group"),
        ("(?&n)(?P<n>a(?&n)?)", "unknown_group"),
        ("(?P>n)(?P<n>a)", "unknown_group"),
        ("(a(?1)?)", "unknown_group"),
        ("(?x)(?:a?){6 0 0 0 0}", "unknown_group"),
        ("a" * (LONGEST + 1), "long"),
    ],
)
def test_what_takes_too_much_is_refused(pattern: str, said: str) -> None:
    with refuses(SettingsError, f"catalogue.pattern.{said}"):
        names_matching(pattern, enumerate(NAMES))


def test_a_pattern_is_quoted_as_it_was_typed() -> None:
    with refuses(SettingsError, "catalogue.pattern.invalid", pattern=r"layers\.(3"):
        names_matching(r"layers\.(3", enumerate(NAMES))


def test_many_names_that_each_take_little_time_take_too_long_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patterns, "SEARCH_SECONDS", 0.05)
    endless = ((0, "model") for _ in iter(int, 1))
    with refuses(SettingsError, "catalogue.pattern.slow"):
        names_matching("model", endless)


@settings(max_examples=200)
@given(st.text("ab.*+?(){}[]|\\019,:=!<>PRxie^$- #", max_size=30))
def test_whatever_is_typed_is_searched_for_or_refused(pattern: str) -> None:
    with suppress(SettingsError):
        assert set(names_matching(pattern, enumerate(NAMES)).tolist()) <= {0, 1, 2}
