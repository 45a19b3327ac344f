"""Change what a text says by its structure: JSON, YAML, tables and logs; and any file by its bytes.

changed_json(content, chance)   the same text with some things in it changed: the same for the same chance

Files of tensors, archives and databases are changed by `containers.py`.
"""

import copy
import json
import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

NAMES = (
    "",
    "x",
    ".",
    "..",
    "a.b.forward.0",
    "Module..forward.0",
    "0",
    "\ud800",
    "forward",
    "data",
    "\0",
    "a/b",
)
VALUES: tuple[Any, ...] = (
    *(0, -1, 1, 2**31, 2**63, 2**64, 10**400, -(10**30), 1e308, float("nan"), float("inf"), 0.5),
    *(True, False, None, "", "x" * 300, "0", "\ud800", [], {}, [[]], [{}], {"": {}}, [None]),
    *(
        [2**62, 2**62],
        [-1, 3],
        [0, 2**63],
        [True],
        [1.5],
        ["2"],
        "y" * 70_000,
        "a." * 3000,
        "\0",
        "2024-01-01",
    ),
)
CELLS = ("", "nan", "-1", "9" * 400, "x", "0", "1e999", '"', "None", "N/A", "(1, 2", "-0")
MORE_CELLS = (*CELLS, '"a""b\nc"', "\0", "测试", "x" * 140_000, "\ufeff", "[[", "1_000", "٣", "0x10", "\x1a")
PIECES = (
    *(
        b"",
        b"\0",
        b"\xff" * 8,
        b"\xb2\xe2\xca\xd4",
        b"\xef\xbb\xbf",
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"9" * 5000,
    ),
    *(
        b"{" * 3000,
        b"[" * 3000,
        b'{"":' * 2000,
        b'"' + b"s" * 5000,
        b"\\ud800",
        b"\n" * 50,
        b"," * 50,
        b"PK\3\4",
    ),
)
INTEGERS = (0, 1, -1, 127, 128, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)

_Chance = random.Random


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401 (any JSON)
    """Give the way to every value in a JSON value."""
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def changed(value: Any, chance: _Chance) -> Any:  # noqa: ANN401
    """Return a JSON value with one to five things in it changed."""
    value = copy.deepcopy(value)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        *way, key = chance.choice([path for path in places(value) if path] or [("",)])
        holder = value
        for step in way:
            holder = holder[step]
        if not holder:
            return _value(chance)
        change_one(holder, key, chance)
    return value


def change_one(holder: Any, key: Any, chance: _Chance) -> None:  # noqa: ANN401
    """Change what lies in an object or a list at a key."""
    old = holder[key]
    what = chance.choice(("gone", "renamed", "replaced", "replaced", "wrapped", "turned", "added"))
    if what == "gone":
        del holder[key]
    elif what == "renamed" and isinstance(holder, dict):
        holder[chance.choice(NAMES)] = holder.pop(key)
    elif what == "added" and isinstance(holder, dict):
        holder[chance.choice(NAMES)] = copy.deepcopy(chance.choice((*VALUES, old)))
    elif what == "wrapped":
        holder[key] = [old]
    elif what == "turned" and isinstance(old, dict | list):
        holder[key] = list(old) if isinstance(old, dict) else {str(at): one for at, one in enumerate(old)}
    else:
        holder[key] = _value(chance)


def _value(chance: _Chance) -> Any:  # noqa: ANN401
    return copy.deepcopy(chance.choice(VALUES))


def changed_lines(text: str, chance: _Chance) -> str:
    """Return a table, or lines of keys and values, with some cells and lines changed."""
    between = "," if "," in text else ":"
    rows = [line.split(between) for line in text.split("\n")]
    for _ in range(chance.choice((1, 2, 5))):
        row = chance.choice(rows)
        if chance.random() < 0.2:
            row.clear()
        elif chance.random() < 0.3:
            row.append(chance.choice(CELLS))
        elif row:
            row[chance.randrange(len(row))] = chance.choice(CELLS)
    return "\n".join(map(between.join, rows))


def changed_words(content: bytes, chance: _Chance) -> bytes:
    """Change cells, words, lines and the order of lines of a text, or the way in which it is encoded."""
    text = content.decode("utf-8", "surrogateescape")
    lines = text.split("\n")
    at = chance.randrange(len(lines))
    what = chance.choice(("cells", "cells", "word", "word", "gone", "twice", "swapped", "wide", "encoded"))
    if what == "cells":
        return changed_lines(text, chance).encode("utf-8", "surrogateescape")
    if what == "encoded":
        plain = text.encode("utf-8", "replace").decode()
        return plain.replace("a", "测", 2).encode(chance.choice(("gbk", "utf-16", "utf-8-sig")), "replace")
    if what == "word":
        words = lines[at].split(" ")
        words[chance.randrange(len(words))] = chance.choice(MORE_CELLS)
        lines[at] = " ".join(words)
    elif what == "swapped":
        other = chance.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif what == "wide":
        lines[at] += chance.choice((",", " ", ":", "\t")) * chance.choice((1, 3, 2000))
    else:
        lines[at : at + 1] = [] if what == "gone" else [lines[at]] * chance.choice((2, 2, 300))
    return "\n".join(lines).encode("utf-8", "surrogateescape")


YAML = (
    *(
        "&a",
        "*a",
        "<<: *a",
        "!!python/object/apply:os.system [x]",
        "!!binary 'a'",
        "!!timestamp x",
        "!!int x",
    ),
    *(
        "2024-13-45",
        "1:2:3",
        "? [a]",
        "{a: *a}",
        "- &b [*b]",
        "---",
        "...",
        "%TAG ! x",
        "'",
        "|",
        ">-",
        "~",
        "@",
    ),
    *(
        "!!set {a}",
        "!!omap [a]",
        "&a [&b [*a, *b]]",
        "0b12",
        "1_0",
        ".inf",
        "\t",
        "=",
        "y",
        "[" * 200,
        "!<!> x",
    ),
)


def changed_yaml(content: bytes, chance: _Chance) -> bytes:
    """Put something that only YAML has into a text: an anchor, a tag, a merge, a date."""
    lines = content.decode("utf-8", "surrogateescape").split("\n")
    at, piece = chance.randrange(len(lines)), chance.choice(YAML)
    key, _, value = lines[at].partition(":")
    indent = key[: len(key) - len(key.lstrip())]
    lines[at : at + 1] = chance.choice(
        (
            [f"{key}: {piece}"],
            [f"{key}: {piece} {value}"],
            [lines[at], f"{indent}{piece}"],
            [f"{indent}{piece}: x"],
        )
    )
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def changed_json(content: bytes, chance: _Chance) -> bytes:
    """Change what JSON says by its structure; of lines of JSON one of them."""
    if chance.random() < 0.1:
        return changed_bytes(content, chance)
    try:
        value = json.loads(content)
    except ValueError:
        lines = content.split(b"\n")
        at = chance.randrange(len(lines))
        with suppress(ValueError):
            lines[at] = _written(changed(json.loads(lines[at]), chance), chance)
        return b"\n".join(lines)
    return _written(changed(value, chance), chance)


def _written(value: Any, chance: _Chance) -> bytes:  # noqa: ANN401
    text = json.dumps(value, ensure_ascii=chance.random() < 0.9)
    if chance.random() < 0.1 and text.startswith("{"):  # a key that is there twice
        text = text.replace("{", '{"data": 1, ', 1)
    return text.encode("utf-8", "surrogatepass")


def changed_bytes(content: bytes, chance: _Chance) -> bytes:
    """Flip, cut, insert and repeat bytes."""
    mutant = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 6))):
        # What tells what there is stands at the beginning, in small files at the end, too.
        near = chance.choice((200, len(mutant), len(mutant)))
        at = min(chance.randrange(max(1, min(len(mutant), near))), len(mutant))
        at = len(mutant) - at if chance.random() < 0.2 else at
        what = chance.choice(("flip", "flip", "number", "cut", "end", "piece", "twice"))
        if what == "flip" and at < len(mutant):
            mutant[at] ^= 1 << chance.randrange(8)
        elif what == "number":
            width = chance.choice("BHIQ")
            number = chance.choice(INTEGERS) % (1 << 8 * struct.calcsize(width))
            mutant[at : at + struct.calcsize(width)] = struct.pack(f"<{width}", number)
        elif what == "cut":
            del mutant[at : at + chance.choice((1, 2, 8, 60))]
        elif what == "end":
            del mutant[at:]
        elif what == "piece":
            mutant[at : at + chance.choice((0, 0, 1, 8))] = chance.choice(PIECES)
        elif what == "twice":
            mutant[at:at] = mutant[at : at + 40]
    return bytes(mutant)
