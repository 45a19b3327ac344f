import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, text

from firstdrift.catalogue.dumps.records import (
    add_dump,
    add_nodes,
    changed_since_indexed,
    find_dump,
    fingerprint,
    get_dump,
    load_dump,
    load_node,
    load_slice,
    slices_of_dump,
)
from firstdrift.catalogue.engine import reading, writing
from firstdrift.dumps.detect import open_dump
from firstdrift.errors import DumpNotFoundError, NotInCatalogueError
from firstdrift.model.slice import Dump
from firstdrift.parallel.slices import read_slice

ALL_SORTS = [
    ("msprobe/llama_stat_mix_nan", "golden"),
    ("msprobe/llama_tensor_mix_perturb", "target"),
    ("msprobe/llama_md5_mix_perturb", "golden"),
    ("msprobe/llama_xor_mix_perturb", "golden"),
    ("msprobe/llama_structure_mix_attn", "golden"),
    ("msprobe/dp2_stat_mix", "target"),
    ("msprobe/llama_stat_mix_3steps", "golden"),
    ("msprobe/megatron_microstep_stat_mix", "golden"),
    ("msit/llama4_api", ""),
    ("msit/llama4_weights", ""),
    ("msit/llama4_stats2_bf16", ""),
    ("msit/atb4_bf16", ""),
    ("msit/quantised_weights", "my"),
    ("msprobe/debug_tensor", "golden"),
    ("transformers/hf_debug_tree", "golden"),
]


def index(engine: Engine, dump: Dump) -> int:
    """Index a dump with all its slices."""
    with writing(engine) as session:
        dump_id = add_dump(session, dump, fingerprint(dump.path))
        slices = slices_of_dump(session, dump_id)
    for indexed in slices:
        add_nodes(partial(writing, engine), indexed.id, read_slice(dump, indexed.listing))
    return dump_id


@pytest.mark.parametrize(("name", "side"), ALL_SORTS)
def test_what_was_indexed_is_what_the_reader_reads(
    engine: Engine, unpacked: Callable[[str], Path], name: str, side: str
) -> None:
    dump = open_dump(unpacked(name) / side)
    dump_id = index(engine, dump)
    with reading(engine) as session:
        restored = load_dump(session, dump_id)
        assert restored == replace(dump, attributes=dict(dump.attributes))
        for indexed in slices_of_dump(session, dump_id):
            read = read_slice(restored, indexed.listing)
            # NaN differs from itself, so the texts are compared
            assert repr(load_slice(session, indexed.id)) == repr(read)
            assert indexed.nodes == len(read.nodes)


@pytest.fixture
def copy(unpacked: Callable[[str], Path], tmp_path: Path) -> Path:
    return shutil.copytree(unpacked("msprobe/llama_tensor_mix_perturb") / "golden", tmp_path / "copy")


def test_a_node_is_found_by_its_name(engine: Engine, copy: Path) -> None:
    dump_id = index(engine, open_dump(copy))
    with reading(engine) as session:
        (indexed,) = slices_of_dump(session, dump_id)
        nodes = load_slice(session, indexed.id).nodes
        assert load_node(session, indexed.id, nodes[100].name) == nodes[100]
        with pytest.raises(NotInCatalogueError):
            load_node(session, indexed.id, "no such node")


def test_indexing_that_was_cut_short_can_be_repeated(engine: Engine, copy: Path) -> None:
    dump = open_dump(copy)
    dump_id = index(engine, dump)
    with writing(engine) as session:
        (indexed,) = slices_of_dump(session, dump_id)
        session.execute(text("UPDATE slices SET nodes = NULL"))
        session.execute(text("DELETE FROM node_blocks WHERE first > 100"))
    read = read_slice(dump, indexed.listing)
    add_nodes(partial(writing, engine), indexed.id, read)
    with reading(engine) as session:
        assert repr(load_slice(session, indexed.id)) == repr(read)


def test_a_dump_that_has_not_changed_is_found_again(engine: Engine, copy: Path) -> None:
    dump_id = index(engine, open_dump(copy))
    with reading(engine) as session:
        found = find_dump(session, copy, fingerprint(copy))
        assert found == get_dump(session, dump_id)
        assert not changed_since_indexed(found)


def change_a_byte_count(dump: Path) -> None:
    with (dump / "step0/rank0/dump.json").open("a") as file:
        file.write("\n")


def change_only_a_date(dump: Path) -> None:
    file = next(dump.rglob("*.pt"))
    os.utime(file, (0, 0))


def remove_a_file(dump: Path) -> None:
    next(dump.rglob("*.pt")).unlink()


def add_a_file(dump: Path) -> None:
    (dump / "step0/rank0/new.json").touch()


def remove_it(dump: Path) -> None:
    shutil.rmtree(dump)


@pytest.mark.parametrize(
    "change", [change_a_byte_count, change_only_a_date, remove_a_file, add_a_file, remove_it]
)
def test_a_dump_that_has_changed_says_so(engine: Engine, copy: Path, change: Callable[[Path], None]) -> None:
    dump_id = index(engine, open_dump(copy))
    change(copy)
    with reading(engine) as session:
        assert changed_since_indexed(get_dump(session, dump_id))


def test_the_fingerprint_of_many_files_is_quick(tmp_path: Path) -> None:
    for folder in range(20):
        (tmp_path / str(folder)).mkdir()
        for file in range(250):
            (tmp_path / str(folder) / str(file)).touch()
    started = time.process_time()
    fingerprint(tmp_path)
    assert time.process_time() - started < 0.5


def test_links_that_lead_nowhere_or_in_circles_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    (tmp_path / "circle").symlink_to(tmp_path)
    assert fingerprint(tmp_path) == fingerprint(tmp_path)


def test_files_have_not_changed_because_firstdrift_indexes_otherwise(
    engine: Engine, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writing(engine) as session:
        dump_id = add_dump(session, open_dump(copy), fingerprint(copy))
    monkeypatch.setattr("firstdrift.catalogue.dumps.records.INDEX_VERSION", 1000)
    with reading(engine) as session:
        assert not changed_since_indexed(get_dump(session, dump_id))
        assert find_dump(session, copy, fingerprint(copy)) is None


def test_there_is_no_fingerprint_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(DumpNotFoundError):
        fingerprint(tmp_path / "missing")


def test_what_was_never_indexed_is_not_in_the_catalogue(engine: Engine) -> None:
    with reading(engine) as session, pytest.raises(NotInCatalogueError):
        get_dump(session, 1)


def test_a_link_that_is_led_elsewhere_changes_the_fingerprint(copy: Path) -> None:
    (copy / "step1").symlink_to("step0")
    first = fingerprint(copy)
    assert [listing.coordinates.step for listing in open_dump(copy).slices] == [0, 1]
    (copy / "step1").unlink()
    (copy / "step1").symlink_to("nowhere")
    assert fingerprint(copy) != first


def test_a_change_behind_a_link_within_the_dump_changes_the_fingerprint(copy: Path) -> None:
    (copy / "step1").symlink_to("step0")
    first = fingerprint(copy)
    (copy / "step1/rank0/new.json").touch()
    assert fingerprint(copy) != first
