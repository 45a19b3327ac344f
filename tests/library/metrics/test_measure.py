"""One pair, measured by whatever was recorded of the two."""

import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis.extra import numpy as hnp
from library.metrics.tensors_at_random import pairs
from messages import gaps_of
from msgspec.structs import replace

from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import TensorUnreadableError
from firstdrift.metrics.comparability import common_shape, shapes_differ
from firstdrift.metrics.measure import measure_pair
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.model.tensor import DataLocation, Role, Statistics, TensorRecord
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

STATISTICS = Statistics(maximum=3.0, minimum=0.0, mean=1.5, norm=math.sqrt(14))


def saved(folder: Path, name: str, values: np.ndarray) -> TensorRecord:
    """Save a tensor as a plain .npy file and describe it."""
    file = folder / f"{name}.npy"
    np.save(file, values)
    return TensorRecord(Role.OUTPUT, "0", values.dtype.name, values.shape, location=DataLocation(file, "npy"))


def recorded(
    statistics: Statistics | None = None, digest: str | None = None, shape: tuple[int, ...] | None = (4,)
) -> TensorRecord:
    return TensorRecord(Role.OUTPUT, "0", "float32", shape, statistics=statistics, digest=digest)


def scalar(value: str) -> TensorRecord:
    return TensorRecord(Role.INPUT, "1", "float", (), scalar=value)


def reason(measurement: Measurement) -> Message:
    assert measurement.kind is MeasurementKind.INCOMPARABLE
    assert measurement.equal is measurement.errors is measurement.golden is None
    assert measurement.reason is not None
    return measurement.reason


def test_statistics_of_which_none_was_recorded_are_none() -> None:
    empty, full = recorded(Statistics(), "a"), recorded(STATISTICS, "a")
    assert measure_pair(empty, full, load_tensor).kind is MeasurementKind.DIGEST
    assert measure_pair(empty, recorded(Statistics(), "b"), load_tensor).equal is False
    found = reason(measure_pair(recorded(Statistics()), recorded(STATISTICS), load_tensor))
    assert found == Message.of("metrics.only_shape", side=side_named("golden"))


def test_two_saved_tensors_are_compared_element_by_element(tmp_path: Path) -> None:
    golden = np.arange(4, dtype=np.float32)
    found = measure_pair(
        saved(tmp_path, "a", golden), saved(tmp_path, "b", golden * np.float32(1.5)), load_tensor
    )
    assert (found.kind, found.equal, found.integers, found.logits) == (
        MeasurementKind.DATA,
        False,
        None,
        None,
    )
    assert found.errors is not None
    assert found.errors.relative_l2 == 0.5
    assert found.golden is not None
    assert found.golden.maximum == 3.0


def test_integers_also_tell_how_they_differ(tmp_path: Path) -> None:
    found = measure_pair(
        saved(tmp_path, "a", np.array([1, 2, 3])),
        saved(tmp_path, "b", np.array([3, 2, 1], np.int32)),
        load_tensor,
    )
    assert found.integers is not None
    assert (found.integers.mismatched, found.integers.same_set) == (2, True)


def test_logits_are_measured_on_request(tmp_path: Path) -> None:
    golden = saved(tmp_path, "a", np.eye(3))
    assert measure_pair(golden, golden, load_tensor).logits is None
    found = measure_pair(golden, golden, load_tensor, logits=True)
    assert found.logits is not None
    assert (found.logits.positions, found.logits.top1_agreement, found.equal) == (3, 1.0, True)


def test_equal_values_of_different_dtypes_are_equal(tmp_path: Path) -> None:
    golden = saved(tmp_path, "a", np.array([1.5, np.nan, np.inf], np.float32))
    target = saved(tmp_path, "b", np.array([1.5, np.nan, np.inf], np.float16))
    assert measure_pair(golden, target, load_tensor).equal


@pytest.mark.parametrize(
    ("golden", "target", "common"),
    [
        ((1, 5, 896), (5, 896), (5, 896)),
        ((2, 5, 896), (10, 896), (10, 896)),
        ((5, 14, 64), (5, 896), (5, 896)),
        ((4, 6), (4, 6), (4, 6)),
        ((1,), (), ()),
        ((3, 1), (3,), (3,)),
        ((0, 3), (0,), (0,)),
        ((4, 6), (6, 4), None),
        ((4, 6), (4, 5), None),
        ((2, 3, 4), (6, 2, 2), None),
    ],
)
def test_shapes_that_say_the_same_have_a_common_one(
    golden: tuple[int, ...], target: tuple[int, ...], common: tuple[int, ...] | None
) -> None:
    assert common_shape(golden, target) == common
    assert common_shape(target, golden) == common


def test_a_transform_of_the_plan_allows_any_shape_of_the_same_size(tmp_path: Path) -> None:
    golden, target = saved(tmp_path, "a", np.ones((4, 6))), saved(tmp_path, "b", np.ones((6, 4)))
    assert reason(measure_pair(golden, target, load_tensor)) == shapes_differ((4, 6), (6, 4))
    assert measure_pair(golden, target, load_tensor, "reshaped to [6, 4]").equal


@given(
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0)
)
def test_a_common_shape_holds_both(golden: tuple[int, ...], target: tuple[int, ...]) -> None:
    common = common_shape(golden, target)
    assert common is None or math.prod(common) == math.prod(golden) == math.prod(target)


def test_statistics_are_compared_with_statistics_even_if_one_side_has_data(tmp_path: Path) -> None:
    golden = replace(saved(tmp_path, "a", np.array([9.0, 9.0, 9.0, 9.0])), statistics=STATISTICS)
    found = measure_pair(golden, recorded(STATISTICS), load_tensor)
    assert (found.kind, found.equal) == (MeasurementKind.STATISTICS, True)


def test_data_stand_in_for_statistics(tmp_path: Path) -> None:
    golden = saved(tmp_path, "a", np.array([0.0, 1.0, 2.0, 3.0]))
    for found in (
        measure_pair(golden, recorded(STATISTICS), load_tensor),
        measure_pair(recorded(STATISTICS), golden, load_tensor),
    ):
        assert found.kind is MeasurementKind.STATISTICS
        assert found.differences is not None
        assert found.differences.error_bound == pytest.approx(0.0, abs=1e-15)
    with_nan = saved(tmp_path, "b", np.array([np.nan, 1.0, 2.0, 3.0]))
    found = measure_pair(with_nan, recorded(STATISTICS), load_tensor)
    assert found.differences is not None
    assert found.differences.nonfinite_differs


def test_statistics_do_not_depend_on_the_layout_but_on_the_size() -> None:
    golden = recorded(STATISTICS, shape=(2, 3))
    assert measure_pair(golden, recorded(STATISTICS, shape=(3, 2)), load_tensor).equal
    assert measure_pair(golden, recorded(STATISTICS, shape=None), load_tensor).equal
    found = measure_pair(golden, recorded(STATISTICS, shape=(2, 4)), load_tensor)
    assert reason(found) == shapes_differ((2, 3), (2, 4))


def test_digests_decide_where_there_is_nothing_else() -> None:
    golden = recorded(digest="f5881353")
    assert measure_pair(golden, golden, load_tensor).equal is True
    found = measure_pair(golden, recorded(digest="00000000"), load_tensor)
    assert (found.kind, found.equal) == (MeasurementKind.DIGEST, False)


def test_equal_statistics_with_different_digests_are_not_equal() -> None:
    found = measure_pair(recorded(STATISTICS, "f5881353"), recorded(STATISTICS, "f5881354"), load_tensor)
    assert (found.kind, found.equal) == (MeasurementKind.STATISTICS, False)
    assert found.reason == Message.of("metrics.digests_overrule")


def test_scalars_are_compared_with_scalars_only() -> None:
    assert measure_pair(scalar("0.5"), scalar("0.5"), load_tensor).equal
    found = reason(measure_pair(scalar("0.5"), recorded(STATISTICS), load_tensor))
    golden = Message.of("metrics.scalar", type="float", value="0.5")
    assert found == Message.of("metrics.against", golden=golden, target=Message.of("metrics.tensor"))


@pytest.mark.parametrize(
    ("golden", "target", "expected"),
    [
        (
            recorded(),
            recorded(STATISTICS),
            "metrics.only_shape",
        ),
        (
            recorded(STATISTICS),
            recorded(digest="f5881353"),
            "metrics.only_digest",
        ),
        (
            recorded(Statistics(maximum=1.0)),
            recorded(Statistics(mean=1.0)),
            "metrics.no_common_statistic",
        ),
    ],
)
def test_what_was_not_recorded_is_said(golden: TensorRecord, target: TensorRecord, expected: str) -> None:
    assert reason(measure_pair(golden, target, load_tensor)).id == expected


def test_a_problem_of_a_record_is_the_reason() -> None:
    broken = replace(recorded(), problem=Message.of("dumps.file.missing"))
    for side, pair in (
        ("target", (recorded(STATISTICS), broken)),
        ("golden", (broken, recorded(STATISTICS))),
    ):
        found = reason(measure_pair(*pair, load_tensor))
        assert found.id == "metrics.of_side"
        assert found.arguments["side"] == side_named(side)
        assert found.arguments["problem"] == broken.problem


def test_a_file_that_cannot_be_read_is_named_with_its_side(tmp_path: Path) -> None:
    golden = saved(tmp_path, "a", np.ones(1000))
    target = saved(tmp_path, "b", np.ones(1000))
    file = tmp_path / "b.npy"
    file.write_bytes(file.read_bytes()[:500])
    found = reason(measure_pair(golden, target, load_tensor))
    assert found.id == "metrics.side_unreadable"
    assert found.arguments["side"] == side_named("target")
    assert gaps_of(found, "error.at")["path"] == str(file)
    file.unlink()
    found = reason(measure_pair(target, golden, load_tensor))
    assert gaps_of(found, "error.at")["path"] == str(file)


def test_what_is_not_a_number_is_incomparable() -> None:
    record = replace(recorded(), location=DataLocation(Path("a.npy"), "npy"))
    found = measure_pair(record, record, lambda _: np.array(["a", "b"]))
    assert reason(found) == Message.of("metrics.side_no_numbers", side=side_named("golden"), dtype="<U1")


def test_an_error_of_ours_is_not_taken_for_a_damaged_file() -> None:
    record = replace(recorded(), location=DataLocation(Path("a.npy"), "npy"))

    def unreadable(location: DataLocation) -> np.ndarray:
        raise TensorUnreadableError(Message.of("dumps.file.cut_short"), path=location.file)

    def broken(location: DataLocation) -> np.ndarray:
        raise RuntimeError(location)

    assert reason(measure_pair(record, record, unreadable)).id == "metrics.side_unreadable"
    with pytest.raises(RuntimeError):
        measure_pair(record, record, broken)


SIGNALLING = np.array([0x7F81, 0], np.uint16).view(ml_dtypes.bfloat16)


@example((SIGNALLING, SIGNALLING))
@given(pairs())
def test_any_two_tensors_can_be_measured(pair: tuple[np.ndarray, np.ndarray]) -> None:
    records = [
        TensorRecord(
            Role.OUTPUT, "0", array.dtype.name, array.shape, location=DataLocation(Path(name), "npy")
        )
        for name, array in zip("ab", pair, strict=True)
    ]
    arrays = dict(zip("ab", pair, strict=True))
    found = measure_pair(*records, lambda location: arrays[location.file.name], logits=True)
    assert found.kind is MeasurementKind.DATA


MASK = np.triu(np.ones((8, 8)), 1)


@pytest.mark.parametrize("lowest", [-65504.0, -65536.0, -math.inf, -3.3895313892515355e38])
def test_masks_of_different_dtypes_do_not_drown_the_scores(tmp_path: Path, lowest: float) -> None:
    scores = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    golden = np.where(MASK, np.finfo(np.float32).min, scores)
    target = np.where(MASK, np.float32(lowest), scores * np.float32(1.01))
    found = measure_pair(saved(tmp_path, "a", golden), saved(tmp_path, "b", target), load_tensor)
    assert found.errors is not None
    assert found.errors.mismatched_nonfinite == 0
    assert found.errors.relative_l2 == pytest.approx(0.01, rel=1e-3)


def test_a_mask_on_one_side_only_is_an_error(tmp_path: Path) -> None:
    golden = np.where(MASK, np.finfo(np.float32).min, np.float32(1.0))
    found = measure_pair(
        saved(tmp_path, "a", golden), saved(tmp_path, "b", np.ones((8, 8), np.float32)), load_tensor
    )
    assert found.errors is not None
    assert found.errors.relative_l2 == pytest.approx(1.0)


def test_integers_have_no_masks(tmp_path: Path) -> None:
    golden, target = np.array([-65504, 5]), np.array([-65503, 5])
    found = measure_pair(saved(tmp_path, "a", golden), saved(tmp_path, "b", target), load_tensor)
    assert found.errors is not None
    assert (found.errors.equal, found.errors.max_absolute_error) == (1, 1.0)


def test_a_mask_that_was_cast_to_bfloat16_is_equal() -> None:
    golden = np.array([np.finfo(np.float32).min, 1.0], np.float32)
    arrays = {"a": golden, "b": golden.astype(ml_dtypes.bfloat16)}
    records = [
        TensorRecord(Role.OUTPUT, "0", "", (2,), location=DataLocation(Path(name), "npy")) for name in arrays
    ]
    assert measure_pair(*records, lambda location: arrays[location.file.name]).equal
