"""What is promised of measuring a fused tensor against its parts."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from messages import gaps_of, ids_of
from msgspec.structs import replace
from numpy.typing import NDArray

from firstdrift.errors import TensorUnreadableError
from firstdrift.metrics.joined import measure_joined
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.model.tensor import DataLocation, Parts, Role, Statistics, TensorRecord
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import shape

Array = NDArray[np.generic]
RANDOM = np.random.default_rng(5)
QUERY, KEY, VALUE = (RANDOM.normal(size=(2, 16, size)).astype(np.float32) for size in (64, 32, 32))
SEPARATE = np.concatenate([QUERY, KEY, VALUE], axis=-1)


def grouped(parts: list[Array], groups: int, axis: int = -1) -> Array:
    pieces = [np.split(part, groups, axis=axis) for part in parts]
    return np.concatenate([piece for group in zip(*pieces, strict=True) for piece in group], axis=axis)


class Memory:
    """Tensors in memory that are read as if they lay in files."""

    def __init__(self) -> None:
        self.arrays: dict[DataLocation, Array] = {}

    def record(self, array: Array) -> TensorRecord:
        location = DataLocation(Path(f"{len(self.arrays)}.npy"), "npy")
        self.arrays[location] = array
        return TensorRecord(Role.OUTPUT, "0", array.dtype.name, array.shape, location=location)

    def load(self, location: DataLocation) -> Array:
        if location not in self.arrays:
            raise TensorUnreadableError(Message.of("dumps.file.missing"), path=location.file)
        return self.arrays[location]


def measure(
    parts: list[Array],
    whole: Array,
    *,
    are_golden: bool = True,
    summed: bool = False,
    witness: Array | None = None,
) -> Measurement:
    """Measure parts against a whole; in another layer they lie as the witness does, or as the whole."""
    memory = Memory()
    records = tuple(memory.record(part) for part in parts)
    joined = replace(records[0], shape=whole.shape, location=None)
    other = memory.record(whole)
    sides = (joined, other) if are_golden else (other, joined)
    witnesses = ((*records, other if witness is None else memory.record(witness)),)
    parts_of = Parts(records, are_golden=are_golden, summed=summed, witnesses=witnesses)
    return measure_joined(*sides, parts_of, memory.load, "joined")


def test_an_arrangement_that_nothing_else_has_is_a_fault() -> None:
    gate, up = QUERY, QUERY[::-1] + 1
    exchanged, as_elsewhere = np.concatenate([up, gate], axis=-1), np.concatenate([gate, up], axis=-1)
    found = measure([gate, up], exchanged, witness=as_elsewhere)
    assert found.errors is not None
    assert found.errors.relative_l2 > 0.1
    everywhere = measure([gate, up], exchanged, witness=exchanged)
    assert everywhere.errors is not None
    assert everywhere.errors.relative_l2 == 0.0


@pytest.mark.parametrize("are_golden", [True, False])
@pytest.mark.parametrize(
    ("whole", "said"),
    [
        (SEPARATE, Message.of("metrics.in_sequence")),
        (grouped([QUERY, KEY, VALUE], 2), Message.of("metrics.in_groups", groups=2)),
        (grouped([QUERY, KEY, VALUE], 4), Message.of("metrics.in_groups", groups=4)),
        (
            np.concatenate([QUERY, grouped([KEY, VALUE], 4)], axis=-1),
            Message.of("metrics.first_then_groups", groups=4),
        ),
        (SEPARATE.reshape(32, 128), Message.of("metrics.in_sequence")),
    ],
)
def test_every_known_arrangement_of_grouped_queries_is_seen_from_the_values(
    whole: Array, said: Message, *, are_golden: bool
) -> None:
    measured = measure([QUERY, KEY, VALUE], whole, are_golden=are_golden)
    assert measured.equal is True
    assert measured.errors is not None
    assert measured.errors.size == 2 * 16 * 128
    assert measured.reason == Message.of("metrics.arranged", how=said)


def test_gate_and_up_may_alternate_or_stand_in_reverse() -> None:
    alternating = measure([KEY, VALUE], grouped([KEY, VALUE], 32))
    assert alternating.equal is True
    assert gaps_of(alternating.reason, "metrics.in_groups") == {"groups": 32}
    reverse = measure([KEY, VALUE], np.concatenate([VALUE, KEY], axis=-1))
    assert reverse.equal is True
    assert "metrics.last_first" in ids_of(reverse.reason)


def test_weights_and_biases_are_joined_along_the_first_dimension() -> None:
    parts = [RANDOM.normal(size=(size, 64)).astype(ml_dtypes.bfloat16) for size in (64, 32, 32)]
    measured = measure(parts, grouped(parts, 2, axis=0))
    assert measured.equal is True
    assert gaps_of(measured.reason, "metrics.in_groups") == {"groups": 2}
    biases = [RANDOM.normal(size=size).astype(np.float32) for size in (64, 32, 32)]
    assert measure(biases, np.concatenate(biases)).equal is True


def test_a_fault_is_not_explained_away_by_another_arrangement() -> None:
    whole = SEPARATE.copy()
    whole[..., 64:96] *= 3
    measured = measure([QUERY, KEY, VALUE], whole)
    assert measured.errors is not None
    assert measured.errors.relative_l2 == pytest.approx(
        2 * np.linalg.norm(KEY) / np.linalg.norm(SEPARATE), rel=1e-5
    )
    assert "metrics.in_sequence" in ids_of(measured.reason)


def test_values_that_are_not_finite_do_not_hide_the_arrangement() -> None:
    whole = grouped([QUERY, KEY, VALUE], 2)
    whole[0, 0, 0] = np.inf
    measured = measure([QUERY, KEY, VALUE], whole)
    assert measured.errors is not None
    assert measured.errors.mismatched_nonfinite == 1
    assert measured.errors.equal == measured.errors.size - 1


def test_gradients_of_a_shared_input_are_summed() -> None:
    assert measure([KEY, VALUE], KEY.astype(np.float64) + VALUE, summed=True).equal is True


def test_statistics_on_one_side_are_held_against_those_of_the_parts() -> None:
    memory = Memory()
    records = tuple(memory.record(part) for part in (QUERY, KEY, VALUE))
    wide = SEPARATE.astype(np.float64)
    statistics = Statistics(
        float(wide.max()), float(wide.min()), float(wide.mean()), float(np.linalg.norm(wide))
    )
    whole = TensorRecord(Role.OUTPUT, "0", "float32", SEPARATE.shape, statistics)
    joined = replace(records[0], shape=SEPARATE.shape, location=None)
    measured = measure_joined(joined, whole, Parts(records, are_golden=True), memory.load, "joined")
    assert measured.kind is MeasurementKind.STATISTICS
    assert measured.differences is not None
    assert measured.differences.error_bound == pytest.approx(0, abs=1e-6)


def test_parts_that_cannot_be_read_or_joined_are_incomparable_with_the_reason() -> None:
    unlike = measure([QUERY, KEY], SEPARATE)
    assert unlike.kind is MeasurementKind.INCOMPARABLE
    assert set(ids_of(unlike.reason)) >= {"metrics.parts_do_not_fit", "metrics.shapes_and_whole"}
    assert gaps_of(unlike.reason, "metrics.shapes")["shapes"] == (shape((2, 16, 64)), shape((2, 16, 32)))
    memory = Memory()
    record = memory.record(QUERY)
    memory.arrays.clear()
    gone = measure_joined(
        replace(record, location=None), record, Parts((record,), are_golden=True), memory.load, ""
    )
    assert gone.kind is MeasurementKind.INCOMPARABLE
    assert gone.reason is not None
    assert gone.reason.id == "metrics.parts_unreadable"


def test_what_is_rotated_in_no_known_way_does_not_fit() -> None:
    values, angle = QUERY[:1, :5, :8], np.outer(np.arange(5), 10.0 ** -np.arange(4))
    cosine, sine = (np.concatenate([turn(angle)] * 2, axis=-1)[None] for turn in (np.cos, np.sin))
    turned = np.concatenate([-values[..., 4:], values[..., :4]], axis=-1)
    memory = Memory()
    records = tuple(map(memory.record, (values, cosine, sine)))
    other = memory.record(-(values * cosine + turned * sine))
    parts = Parts(records, are_golden=True, rotated=True)
    measured = measure_joined(replace(records[0], location=None), other, parts, memory.load, "")
    assert measured.kind is MeasurementKind.INCOMPARABLE
    assert measured.reason is not None
    assert measured.reason.id == "metrics.not_rotated"
