"""What the library says, said in another language."""

# ruff: noqa: RUF001 - Chinese has brackets and commas of its own

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from firstdrift import compare
from firstdrift.errors import DumpNotFoundError
from firstdrift_frontend.languages import load_language
from firstdrift_frontend.sentences import Gap, Piece, pieces, sayer, with_gaps

PATTERNS = {
    "its weight differs": "W",
    "inputs agree ({0}), output does not ({1})": "A({0}) B({1})",
    "{0} against {1}": "{1} vs {0}",
    "relative L2 {0}": "L2={0}",
    "{0} is the first bad node: {1}.": "{0}! {1}",
    "a {{brace}} in {0}": "{{}} {0}",
}


def test_a_sentence_is_said_with_all_that_stands_in_its_gaps() -> None:
    say = sayer(PATTERNS)
    assert say("its weight differs") == "W"
    assert say("inputs agree (relative L2 1e-7), output does not (3 against 4)") == "A(L2=1e-7) B(4 vs 3)"
    assert say("model.layers.7 is the first bad node: its weight differs.") == "model.layers.7! W"
    assert say("a {brace} in x") == "{} x"


def test_a_sentence_of_several_is_said_part_by_part() -> None:
    assert sayer(PATTERNS)("its weight differs; relative L2 2; and more") == "W; L2=2; and more"


def test_an_error_with_its_file_and_what_to_try_is_said_sentence_by_sentence() -> None:
    say = sayer({"{0}.": "{0}!", "{0}. {1}": "{0}! {1}", "it is gone": "G", "Look for {0}": "L({0})"})
    error = DumpNotFoundError("it is gone", path="/data/run.1", hint="Look for it in x.y")
    assert say(str(error)) == "/data/run.1: G! L(it in x.y)!"


def test_what_is_listed_in_a_sentence_is_listed_in_it() -> None:
    say = sayer({"Choose one of {0}": "从 {0} 中选择", "{0} of {1}": "{1} 的 {0}"})
    assert say("Choose one of firstdrift, msprobe, msit") == "从 firstdrift, msprobe, msit 中选择"


def test_parts_that_were_put_together_are_said_as_what_they_are() -> None:
    known = {
        "the difference lies in index {0} {1}, alone": "only {1} at {0}",
        "of dimension {0}": "dim {0}",
        ": block {0} of {1}": " (block {0}/{1})",
        "{0} of {1}": "{1}'s {0}",
        "at least ": ">= ",
        "relative L2 {0}": "L2={0}",
        "target is golden": "same",
        "rounded to {0}": "as {0}",
        "target is {0}": "{0}!",
        "golden with the sign flipped": "-",
        "{0} names": "{0}n",
        "without a role: outputs": "no role",
    }
    say = sayer(known)
    assert (
        say("the difference lies in index 3 of dimension 1, alone: block 1 of 4")
        == "only dim 1 at 3 (block 1/4)"
    )
    assert say("relative L2 at least 2") == "L2=>= 2"
    assert say("target is golden rounded to half") == "same as half"
    assert say("3 names without a role: outputs") == "3n no role"
    assert say("target is golden with the sign flipped") == "-!"


def test_what_is_not_known_stays_as_it_is() -> None:
    say = sayer(PATTERNS)
    assert say("nothing like it {0} %s") == "nothing like it {0} %s"
    assert say("") == say(None) == ""
    assert sayer({})("its weight differs") == "its weight differs"


def test_names_from_dumps_cannot_break_a_sentence() -> None:
    say = sayer(PATTERNS)
    assert say("{1}.{x} is the first bad node: its weight differs.") == "{1}.{x}! W"
    assert say("a\nb is the first bad node: its weight differs.") == "a\nb! W"


LINKED = {
    "Token {0} is the first bad token; in it {1}": "词元 {0} 首先出错; 其中 {1}",
    "{0} is the first bad node: {1}.": "{0} 最先出错: {1}。",
    "In {0}, {1}": "在 {0}, {1}",
    "its weight differs": "权重不同",
    "step {0}": "第 {0} 步",
}


def test_links_in_a_sentence_lead_to_the_same_in_every_language() -> None:
    gaps = [Gap("3", "/t", before="Token "), Gap("layers.2: a, b", "/n")]
    summary = (
        "Token 3 is the first bad token; in it layers.2: a, b is the first bad node: its weight differs."
    )
    linked = with_gaps(summary, gaps)
    english = pieces(sayer({}), linked)
    assert [(piece.text, piece.address) for piece in english if piece.address] == [
        ("Token 3", "/t"),
        ("layers.2: a, b", "/n"),
    ]
    assert "".join(piece.text for piece in english) == summary
    chinese = pieces(sayer(LINKED), linked)
    assert (
        "".join(piece.text for piece in chinese)
        == "词元 3 首先出错; 其中 layers.2: a, b 最先出错: 权重不同。"
    )
    assert [(piece.text, piece.address) for piece in chinese if piece.address] == [
        ("3", "/t"),
        ("layers.2: a, b", "/n"),
    ]


def test_a_gap_without_an_address_is_said_and_names_are_not() -> None:
    gaps = [Gap("step 0", is_said=True), Gap("step 4", "/n")]
    linked = with_gaps("In step 0, step 4 is the first bad node: its weight differs.", gaps)
    said = pieces(sayer(LINKED), linked)
    assert "".join(piece.text for piece in said) == "在 第 0 步, step 4 最先出错: 权重不同。"


def test_a_name_that_looks_like_a_gap_is_a_name() -> None:
    hostile = "a\ue0001\ue001b\ue0007\ue001"
    linked = with_gaps(f"{hostile} is the first bad node: its weight differs.", [Gap(hostile, "/n")])
    assert pieces(sayer(LINKED), linked)[0] == Piece(hostile, "/n")
    assert "".join(piece.text for piece in pieces(sayer({}), with_gaps(hostile, []))) == hostile


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        (
            "inputs agree (0), output does not (0.16 in the worst row)",
            "输入一致（0），输出不一致（0.16（最差行））",
        ),
        (
            "parameter weight differs (relative L2 0.47 in the worst row)",
            "参数 weight 不同（相对 L2 0.47（最差行））",
        ),
        (
            "nothing before it differs as much, its output does (0.71 in the worst row)",
            "之前没有如此大的差异，其输出有（0.71（最差行））",
        ),
        ("off by 0.71 in the worst row (relative L2)", "偏差 0.71（最差行）（相对 L2）"),
        ("relative L2 at least 2", "相对 L2 至少 2"),
        ("off by at least 0.022 (relative L2)", "偏差 至少 0.022（相对 L2）"),
    ],
)
def test_how_large_an_error_is_and_what_it_is_of_are_said(sentence: str, said: str) -> None:
    assert sayer(load_language("zh").sentences)(sentence) == said


def test_a_finding_with_brackets_of_its_own_is_said_whole(unpacked: Callable[[str], Path]) -> None:
    dump = unpacked("msprobe/qwen2_layermap_stat_mix")
    summary = compare(dump / "golden", dump / "target").findings.summary
    assert "(relative L2)" in summary
    said = sayer(load_language("zh").sentences)(summary)
    assert not re.search(r"[a-z]{4,}", said.replace("step 0, rank 0", "")), said
