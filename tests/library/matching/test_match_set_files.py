"""What is promised of match sets in files."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mapping_reading import read_mapping
from messages import refuses

from firstdrift.errors import SettingsError
from firstdrift.exports.match_set_json import match_set_text
from firstdrift.matching.manual.edits import Edit, EditKind, MatchSetFile, match
from firstdrift.matching.manual.mapping import MappingKind
from firstdrift.matching.manual.match_set_file import parse_matches, read_matches

MAPPINGS = Path(__file__).parents[2] / "mappings"
HERE = Path("set.json")
NAMES = st.lists(st.text(max_size=12), min_size=1, max_size=3, unique=True).map(tuple)
ONE = st.text(max_size=12).map(lambda name: (name,))
EDITS = st.builds(Edit, st.sampled_from(EditKind), NAMES, ONE, st.booleans())


@given(st.text(max_size=20), st.lists(EDITS, max_size=4).map(tuple))
def test_what_was_written_is_read_back_whatever_the_names_hold(name: str, edits: tuple[Edit, ...]) -> None:
    said = MatchSetFile(name, edits)
    text = match_set_text(said)
    assert parse_matches(HERE, text.encode().decode()) == said


def test_mapping_files_of_other_tools_are_kept_in_it(tmp_path: Path) -> None:
    files = [MAPPINGS / "layer_mapping_qwen2.yaml", MAPPINGS / "op_mapping_file.json"]
    read = read_matches(files)
    assert [mapping.kind for mapping in read.mappings] == [MappingKind.LAYER, MappingKind.OPERATOR]
    assert read.mappings == tuple(map(read_mapping, files))
    edit = match("a", "b")
    (tmp_path / "set.json").write_text(match_set_text(MatchSetFile("all", (edit,), read.mappings)))
    again = read_matches([tmp_path / "set.json", MAPPINGS / "data_mapping_llama.yaml"])
    assert again.edits == (edit,)
    assert again.mappings == (*read.mappings, read_mapping(MAPPINGS / "data_mapping_llama.yaml"))


GOOD = {"kind": "match", "golden": ["a"], "target": ["b"]}
SET = {"firstdrift_match_set": 1, "edits": [GOOD]}


def test_what_is_left_out_is_as_usual() -> None:
    assert parse_matches(HERE, json.dumps(SET)) == MatchSetFile("set.json", (match("a", "b"),))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (json.dumps(SET)[:-3], "matching.match_set.unreadable"),
        (json.dumps(SET | {"firstdrift_match_set": 2}), "matching.match_set.other_format"),
        (json.dumps(SET | {"edits": [GOOD | {"kind": "delete"}]}), "matching.match_set.unreadable"),
        (json.dumps(SET | {"edits": [GOOD | {"golden": "a"}]}), "matching.match_set.unreadable"),
        (json.dumps(SET | {"edits": [GOOD, GOOD | {"golden": []}]}), "matching.edit.one_side"),
        (json.dumps(SET | {"edits": [GOOD | {"golden": ["x"] * 2}]}), "matching.edit.named_twice"),
        (json.dumps(SET | {"edits": {"a": 1}}), "matching.match_set.unreadable"),
        (json.dumps(SET | {"x": [[[[[[[[1]]]]]]]]}), "matching.match_set.too_deep"),
        ('{"name": "firstdrift_match_set"}', "matching.match_set.no_mark"),
        ('{"firstdrift_match_set": 1, "x": ' + "[" * 100_000, "matching.match_set.unreadable"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_place(text: str, why: str) -> None:
    with refuses(SettingsError, why) as caught:
        parse_matches(HERE, text)
    assert caught.value.path == HERE
