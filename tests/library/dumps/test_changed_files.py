"""Whatever a JSON, CSV or YAML file of a dump says in place of what it said, the answer is one with a name.

The changes know what such files are made of: keys go, are renamed or empty, values become of another kind,
too large, or nothing. They are the same in every run.
"""

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from library.dumps.msprobe_samples import module, write_dump
from mapping_reading import read_mapping

from firstdrift.comparison.compare import compare
from firstdrift.dumps.detect import open_dump
from firstdrift.errors import FirstdriftError, SettingsError
from firstdrift.parallel.slices import read_slice, read_stacks

CHANGES = 60
COMPARED_EACH = 5
DUMPS = (
    "msprobe/comm2_stat_mix",
    "msprobe/debug_stat",
    "msprobe/llama_stat_list",
    "msprobe/llama_structure_mix_attn",
    "msprobe/zoo_xor_mix",
    "msprobe/aclgraph",
    "msit/atb12_bf16_logits",
    "msit/llama4_logits_golden",
    "msit/torchair",
    "msit/llama4_stats1_golden",
    "transformers/hf_debug_tree",
)
MAPPINGS = Path(__file__).parents[2] / "mappings"
NAMES = ("", "x", ".", "..", "a.b.forward.0", "Module..forward.0", "0", "\ud800", "forward", "data")
VALUES: tuple[Any, ...] = (
    *(0, -1, 1, 2**31, 2**63, 2**64, 10**400, -(10**30), 1e308, float("nan"), float("inf"), 0.5),
    *(True, False, None, "", "x" * 300, "0", "\ud800", [], {}, [[]], [{}], {"": {}}, [None]),
)
CELLS = ("", "nan", "-1", "9" * 400, "x", "0", "1e999", '"', "None", "N/A", "(1, 2", "-0")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401 (any JSON)
    """Give the way to every value in a JSON value."""
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def changed(value: Any, chance: random.Random) -> Any:  # noqa: ANN401
    """Return a JSON value with one to five things in it changed."""
    value = copy.deepcopy(value)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        *way, key = chance.choice([path for path in places(value) if path] or [("",)])
        holder = value
        for step in way:
            holder = holder[step]
        if not holder:
            return chance.choice(VALUES)
        change_one(holder, key, chance)
    return value


def change_one(holder: Any, key: Any, chance: random.Random) -> None:  # noqa: ANN401
    old = holder[key]
    what = chance.choice(("gone", "renamed", "replaced", "replaced", "wrapped", "turned", "added"))
    if what == "gone":
        del holder[key]
    elif what == "renamed" and isinstance(holder, dict):
        holder[chance.choice(NAMES)] = holder.pop(key)
    elif what == "added" and isinstance(holder, dict):
        holder[chance.choice(NAMES)] = chance.choice((*VALUES, old))
    elif what == "wrapped":
        holder[key] = [old]
    elif what == "turned" and isinstance(old, dict | list):
        holder[key] = list(old) if isinstance(old, dict) else {str(at): one for at, one in enumerate(old)}
    else:
        holder[key] = chance.choice(VALUES)


def changed_lines(text: str, chance: random.Random) -> str:
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


def change(file: Path, chance: random.Random) -> None:
    text = file.read_text()
    try:
        after = json.dumps(changed(json.loads(text), chance), ensure_ascii=chance.random() < 0.9)
    except json.JSONDecodeError:
        after = changed_lines(text, chance)
    file.write_text(after, errors="surrogatepass")


@pytest.mark.parametrize("name", DUMPS)
def test_any_change_to_what_a_file_says_gives_an_answer_with_a_name(
    unpacked: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    copied = shutil.copytree(unpacked(name), tmp_path / "copied")
    tops = sorted(top for top in copied.rglob("*") if top.name in ("golden", "target")) or [copied]
    files = sorted(
        file
        for top in tops
        for file in top.rglob("*")
        if file.suffix in (".json", ".csv", ".txt") and file.is_file()
    )
    assert files
    chance = random.Random(name)  # noqa: S311 (the same in every run)
    for number in range(CHANGES):
        file = chance.choice(files)
        whole = file.read_bytes()
        change(file, chance)
        top = next(top for top in tops if file.is_relative_to(top))
        try:
            dump = open_dump(top)
            for listing in dump.slices:
                read_slice(dump, listing)
                read_stacks(dump, listing)
            if number % COMPARED_EACH == 0:
                compare(tops[0], tops[-1])
        except FirstdriftError:
            pass
        file.write_bytes(whole)


def test_any_change_to_a_mapping_file_gives_a_mapping_or_a_named_error(tmp_path: Path) -> None:
    chance = random.Random(1)  # noqa: S311 (the same in every run)
    for written in sorted(MAPPINGS.iterdir()):
        for _ in range(CHANGES):
            file = Path(shutil.copy(written, tmp_path))
            change(file, chance)
            try:
                assert read_mapping(file).entries or file.read_text("utf-8").strip() == "{}"
            except SettingsError as error:
                assert error.path == file  # noqa: PT017 (both outcomes are right)


@pytest.mark.parametrize("file", ["construct.json", "dump.json"])
def test_a_node_without_a_name_is_a_node_like_others(tmp_path: Path, file: str) -> None:
    names = "Module.a.A.forward.0", "Module.b.B.forward.0"
    data = {name: module() for name in names}
    construct: dict[str, Any] = dict.fromkeys(names)
    nameless = data | {"": module()} if file == "dump.json" else data
    write_dump(tmp_path, nameless, {"": None} | construct)
    rows = compare(tmp_path, tmp_path).slices[0].rows
    assert sorted(row.target for row in rows) == [("",), (names[0],), (names[1],)]
    assert all(row.parent is None for row in rows)
