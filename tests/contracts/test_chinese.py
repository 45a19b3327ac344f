"""Chinese texts have full-width punctuation, no stray spaces, and no English that has a Chinese word."""

import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest
from babel.messages.pofile import read_po

from firstdrift.wording.text import texts
from firstdrift_frontend.languages import LOCALE

ROOT = Path(__file__).resolve().parents[2]
HAN = r"[\u4e00-\u9fff]"
FULL = "，。；：！？、（）“”"
GAP = "\N{WHITE SQUARE}"
"""Stands for what is filled in."""

PATTERNS = {
    "a half-width comma, semicolon or question mark beside Chinese": rf"{HAN}[,;!?]|[,;!?] ?{HAN}",
    "a half-width colon after Chinese": rf"{HAN}:(?!{HAN}|//|\d)|{HAN}: ",
    "half-width parentheses around Chinese": rf"\((?![^()]*\|\|)[^()]*{HAN}[^()]*\)",
    "a space between Chinese characters": rf"{HAN} +{HAN}",
    "a space beside full-width punctuation": rf"(?<!\|) [{FULL}]|[{FULL}] (?!\|)",
    "full stops for an ellipsis": r"。。|(?<!/)\.\.\.",
    "half an ellipsis": r"(?<!…)…(?!…)",
    "golden or target, which have Chinese words": r"(?ai)(?<![\w`./{-])(?:golden|target)(?![\w`./}-])",
    "English against Chinese": rf"(?a)\b(?:dump|dumps|slice|slices|node|nodes|tensor)(?=\s?{HAN})",
    "the index of a tensor put first": r"(?:目标|标杆) 下标",
    "数据类型 for dtype": r"数据类型|基准",
}
MAY_SAY = re.compile(r"golden, target = torch|指明 target 和 golden|（(?:golden|target)）")
"""Code that is shown, and where the README says what the words are in English."""


def plain(text: str) -> str:
    """Return a text with one character for each gap."""
    parts = Formatter().parse(re.sub(r"%\(\w+\)[sd]", GAP, text))
    return "".join(said + (GAP if name is not None else "") for said, name, _, _ in parts)


def chinese() -> Iterator[tuple[str, str]]:
    """Give every Chinese text, with where it stands."""
    yield from texts("zh").items()
    with (LOCALE / "zh/LC_MESSAGES/firstdrift.po").open("rb") as file:
        for message in read_po(file, locale="zh"):
            forms = message.string if isinstance(message.string, tuple | list) else (message.string,)
            yield from ((str(message.id), form) for form in forms if message.id)
    readme = (ROOT / "README.zh.md").read_text("utf-8")
    prose = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", GAP, readme, flags=re.DOTALL)
    yield from ((f"README.zh.md {number}", line) for number, line in enumerate(prose.splitlines(), 1))


ALL = list(chinese())


@pytest.mark.parametrize("what", PATTERNS)
def test_no_chinese_text_has(what: str) -> None:
    assert len(ALL) > 1500
    pattern = re.compile(PATTERNS[what])
    lines = [(where, text if "README" in where else plain(text)) for where, text in ALL]
    found = [(where, text) for where, text in lines if re.search(HAN, text) and pattern.search(text)]
    assert [(where, text) for where, text in found if not MAY_SAY.search(text)] == []


def test_no_chinese_text_is_an_english_plural() -> None:
    assert [(where, text) for where, text in ALL if re.search(r"(?i)\b(?:steps|ranks|tokens)$", text)] == []


@pytest.mark.parametrize(
    ("what", "text"),
    list(
        zip(
            PATTERNS,
            (
                "形状不同,无法对比",
                "形状: 4",
                "已读(全部)",
                "目标 转储",
                "已完成 。",
                "正在读取。。。",
                "正在读取…",
                "target转储",
                "dump 已更改",
                "目标 下标 0 处为 95",
                "数据类型不同",
            ),
            strict=True,
        )
    ),
)
def test_each_pattern_finds_what_it_is_for(what: str, text: str) -> None:
    assert re.search(PATTERNS[what], text)
