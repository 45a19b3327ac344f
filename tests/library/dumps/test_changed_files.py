"""Whatever a JSON, CSV or YAML file of a dump says in place of what it said, the answer is one with a name.

The changes know what such files are made of: keys go, are renamed or empty, values become of another kind,
too large, or nothing. They are the same in every run.
"""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fuzz.mutations import changed, changed_lines
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
                assert read_mapping(file).entries or "{}" in file.read_text("utf-8")
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
