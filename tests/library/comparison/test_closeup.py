"""What can be looked at from near, what cannot and why, and the script that loads a pair."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from messages import gaps_of, ids_of, like
from msgspec.structs import replace

from firstdrift import compare
from firstdrift.comparison import closeup
from firstdrift.comparison.algorithms import with_results
from firstdrift.comparison.closeup import NothingToSeeError, files_of, load_pair
from firstdrift.comparison.stages import measure_pairs
from firstdrift.exports.snippet import reproduction
from firstdrift.files import confine_process
from firstdrift.matching.plan import Joining, SlicePlan, TensorPair
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.model.tensor import DataLocation, Role, Statistics, TensorRecord
from firstdrift.wording.message import Message, verbatim
from firstdrift.wording.phrases import side_named

RANDOM = np.random.default_rng(1)


def saved(folder: Path, name: str, array: np.ndarray) -> TensorRecord:
    np.save(folder / f"{name}.npy", array)
    location = DataLocation(folder / f"{name}.npy", "npy")
    return TensorRecord(Role.OUTPUT, name, array.dtype.name, array.shape, location=location)


def pair_of(golden: TensorRecord, target: TensorRecord, **more: object) -> TensorPair:
    return TensorPair(0, "node 'a'", "node\nb", golden, target, **more)  # type: ignore[arg-type]


def measured(pair: TensorPair) -> Measurement:
    return measure_pairs(SlicePlan(None, None, (), (pair,), (), ()), 0, 1)[0]  # type: ignore[arg-type]


def why(pair: TensorPair, measurement: Measurement | None = None) -> Message:
    with pytest.raises(NothingToSeeError) as caught:
        load_pair(pair, measurement or measured(pair))
    return caught.value.message


def without_values(what: str, side: str | None = None) -> Message:
    recorded = Message(f"closeup.{what}")
    if side is None:
        return Message.of("closeup.without_values", what=recorded)
    return Message.of("closeup.side_without_values", side=side_named(side), what=recorded)


@pytest.fixture
def one(tmp_path: Path) -> TensorPair:
    golden = RANDOM.normal(size=(1, 5, 896)).astype("float32")
    target = golden[0] * np.float32(1.5)
    return pair_of(saved(tmp_path, "golden", golden), saved(tmp_path, "target's", target))


@pytest.fixture
def fused(tmp_path: Path) -> TensorPair:
    parts = [RANDOM.normal(size=(4, size)).astype("float32") for size in (8, 4, 4)]
    records = tuple(saved(tmp_path, name, part) for name, part in zip("qkv", parts, strict=True))
    whole = saved(tmp_path, "qkv", np.concatenate(parts, axis=-1) + np.float32(0.5))
    joined = replace(records[0], shape=(4, 16), location=None)
    return pair_of(
        joined, whole, transform=(verbatim("joined"),), golden_parts=records, joining=Joining.CONCATENATED
    )


def printed(script: str, tmp_path: Path) -> str:
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_shapes_are_laid_over_each_other_as_where_they_are_measured(one: TensorPair) -> None:
    found = load_pair(one, measured(one))
    assert found.golden.shape == found.target.shape == (5, 896)
    assert found.shapes == ((1, 5, 896), (5, 896))
    reshaped = {"golden": (1, 5, 896), "target": (5, 896), "shape": (5, 896)}
    assert found.notes == (Message("closeup.reshaped", reshaped),)
    assert found.fine is None


def test_the_finer_of_two_shapes_is_kept(tmp_path: Path) -> None:
    values = RANDOM.normal(size=(5, 14, 64))
    pair = pair_of(saved(tmp_path, "fine", values), saved(tmp_path, "coarse", values.reshape(5, 896)))
    assert load_pair(pair, measured(pair)).fine == (5, 14, 64)


def test_parts_are_joined(fused: TensorPair) -> None:
    found = load_pair(fused, measured(fused))
    assert np.allclose(found.target - found.golden, 0.5)
    assert [note.id for note in found.notes][1:] == ["metrics.arranged"]
    assert "metrics.in_sequence" in ids_of(found.notes[1])
    assert [file.stem for file in files_of(fused)] == ["qkv", "q", "k", "v"]


def test_a_joined_tensor_has_values_where_each_of_its_parts_has(fused: TensorPair) -> None:
    """The close-up and algorithms say the same of what lacks them."""
    statistics = Statistics(1.0, -1.0, 0.0, 2.0)
    bare = [replace(part, location=None, statistics=statistics) for part in fused.golden_parts]
    one_bare = replace(
        fused,
        golden=replace(fused.golden, statistics=statistics),
        target=replace(fused.target, statistics=statistics),
        golden_parts=(bare[0], *fused.golden_parts[1:]),
    )
    none_saved = replace(one_bare, golden_parts=tuple(bare), target=replace(one_bare.target, location=None))
    assert fused.without_values == ()
    assert said_to_algorithms(fused) == "joined from several tensors"
    assert one_bare.without_values == ("golden",)
    assert why(one_bare) == without_values("statistics", "golden")
    assert said_to_algorithms(one_bare) == "no values in the golden dump"
    assert none_saved.without_values == ("golden", "target")
    assert why(none_saved) == without_values("statistics")
    assert said_to_algorithms(none_saved) == "no values in either dump"
    turned = replace(
        one_bare,
        golden=one_bare.target,
        target=one_bare.golden,
        golden_parts=(),
        target_parts=one_bare.golden_parts,
    )
    assert turned.without_values == ("target",)


def said_to_algorithms(pair: TensorPair) -> str:
    """Return why an algorithm is not given a pair."""
    plan = SlicePlan(None, None, (), (pair,), (), ())  # type: ignore[arg-type]
    (found,) = with_results([np.allclose], plan, [measured(pair)])
    assert found.custom is not None
    return found.custom[0].remark


def test_no_file_is_looked_at_outside_the_directories_that_may_be_read(
    one: TensorPair, fused: TensorPair
) -> None:
    known = [(pair, measured(pair)) for pair in (one, fused)]
    confine_process([])
    try:
        for pair, measurement in known:
            assert files_of(pair)
            with pytest.raises(NothingToSeeError, match=like("files.leads_out")):
                load_pair(pair, measurement)
    finally:
        confine_process(None)


def test_what_cannot_be_looked_at_is_said_in_a_sentence(one: TensorPair, tmp_path: Path) -> None:
    statistics = Statistics(1.0, -1.0, 0.0, 2.0)
    bare = replace(one.golden, location=None, statistics=statistics)
    assert why(replace(one, golden=bare)) == without_values("statistics", "golden")
    both = pair_of(bare, replace(one.target, location=None, statistics=statistics))
    assert why(both) == without_values("statistics")
    digests = pair_of(*(replace(side, location=None, digest="md5:0") for side in (one.golden, one.target)))
    assert why(digests) == without_values("digests")
    scalar = TensorRecord(Role.INPUT, "1", "int", (), scalar="3")
    assert why(pair_of(scalar, scalar)) == Message.of("closeup.scalars")
    assert why(replace(one, incomparable=verbatim("shapes differ: [1] and [2]"))) == verbatim(
        "shapes differ: [1] and [2]"
    )
    before = measured(one)
    np.save(tmp_path / "target's.npy", np.zeros(7))
    assert why(one, before) == Message.of("closeup.changed", side=side_named("target"), now=7, then=4480)
    (tmp_path / "target's.npy").write_bytes(b"\x93NUMPY")
    assert gaps_of(why(one, before), "closeup.unreadable")["file"] == "target's.npy"
    (tmp_path / "target's.npy").unlink()
    assert gaps_of(why(one, before), "closeup.unreadable")["file"] == "target's.npy"
    assert why(one) == measured(one).reason


def test_what_has_to_be_put_together_must_not_be_large(
    fused: TensorPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = saved(tmp_path, "a", np.ones((2, 3))), saved(tmp_path, "b", np.ones((2, 3)))
    places = tuple(shard.location for shard in shards if shard.location is not None)
    whole = replace(shards[0], shape=(4, 3), location=replace(places[0], shards=places, axis=0))
    other = saved(tmp_path, "c", np.full((4, 3), 2.0))
    crossed = saved(tmp_path, "crossed", np.ones((4, 6), order="F"))
    flat = pair_of(saved(tmp_path, "flat", np.ones(24)), crossed, transform=(verbatim("flattened"),))
    before = [(pair, measured(pair)) for pair in (fused, pair_of(whole, other), flat)]
    for pair, numbers in before:
        assert load_pair(pair, numbers).golden.size
    monkeypatch.setattr(closeup, "LARGEST_COPY", 10)
    for pair, numbers in before[:2]:
        assert why(pair, numbers).id == "closeup.too_large_to_join"
    assert why(*before[2]).id == "closeup.too_large_to_reorder"


def test_the_script_loads_both_and_prints_their_difference(one: TensorPair, tmp_path: Path) -> None:
    script = reproduction(one, (5, 896))
    assert script is not None
    said = printed(script, tmp_path)
    assert "golden float32 (1, 5, 896)\ntarget float32 (5, 896)\n" in said
    found = re.search(r"relative L2 (\S+)", said)
    assert found is not None
    assert float(found[1]) == pytest.approx(0.5, rel=1e-6)
    assert "not finite 0" in said


def test_the_script_joins_parts_and_shards(fused: TensorPair, tmp_path: Path) -> None:
    joined = reproduction(fused, (4, 16))
    summed = reproduction(replace(fused, joining=Joining.SUMMED), (4, 16))
    assert joined is not None
    assert summed is not None
    assert "largest difference 0.5" in printed(joined, tmp_path)
    assert summed.count("load_tensor(") == 4
    assert reproduction(replace(fused, joining=Joining.ROTATED), (4, 16)) is None
    assert fused.golden_parts[0].location is not None
    place = fused.golden_parts[0].location
    shared = replace(fused.golden_parts[0], location=replace(place, shards=(place, place), axis=0))
    script = reproduction(pair_of(shared, shared), (8, 8))
    assert script is not None
    assert "golden float32 (8, 8)" in printed(script, tmp_path)


def test_there_is_no_script_without_values(one: TensorPair) -> None:
    assert reproduction(replace(one, golden=replace(one.golden, location=None)), (5, 896)) is None
    assert reproduction(one, (0,)) is None


@pytest.mark.parametrize(
    ("golden", "target"),
    [
        ("msit/llama4_logits_golden", "msit/llama4_logits_perturb"),
        ("msprobe/tp2_vs_tp1", None),
        ("msprobe/llama_tensor_L1_identical", None),
    ],
)
def test_of_real_dumps_every_pair_with_data_can_be_looked_at(
    unpacked: Callable[[str], Path], golden: str, target: str | None
) -> None:
    folders = [unpacked(golden), unpacked(target)] if target else sorted(unpacked(golden).iterdir())[:2]
    seen = 0
    for result in compare(*folders).slices:
        for pair, numbers in list(zip(result.plan.pairs, result.measurements, strict=True))[::7]:
            try:
                found = load_pair(pair, numbers)
            except NothingToSeeError:
                assert numbers.kind is not MeasurementKind.DATA or pair.is_joined
                continue
            seen += 1
            assert found.golden.shape == found.target.shape
            assert (reproduction(pair, found.golden.shape) is not None) == bool(found.golden.size)
    assert seen or "tp2" in golden
