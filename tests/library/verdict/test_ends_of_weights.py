"""Statistics of a weight: rounding keeps the order of numbers, so its ends are those of golden, rounded."""

import ml_dtypes
import numpy as np
import pytest
from library.verdict.made_slices import Array, Call, Judged, make, values_of
from msgspec.structs import replace

from firstdrift.metrics.statistics import measure_statistics
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.confidence import Quantity

WEIGHT = values_of("weight", (128, 32))
LINEAR = "Module.mlp.Linear.forward.0"


def judged(weight: Array, step: int = 0) -> Judged:
    """Judge a layer of which statistics were recorded, the target's weight being in bfloat16."""
    made = make(
        Call(
            LINEAR,
            inputs=[0.0],
            outputs=[(values_of("made"), (values_of("made") * 1.01).astype(ml_dtypes.bfloat16))],
            parameters={"weight": (WEIGHT, weight.astype(ml_dtypes.bfloat16))},
        ),
        coordinates=Coordinates(step=step),
    )
    measurements = tuple(
        measure_statistics(one.golden, one.target) if one.golden and one.target else one
        for one in made.measurements
    )
    return replace(made, measurements=measurements).judge()


def with_largest(times: float) -> Array:
    """Return the weight with another largest element."""
    made = WEIGHT.copy()
    made.flat[made.argmax()] *= times
    return made


def test_a_weight_that_was_rounded_is_the_same() -> None:
    assert judged(WEIGHT).origins == []


@pytest.mark.parametrize("change", [with_largest(1.02), -with_largest(1.02)[::-1], np.roll(WEIGHT, 1) * 1.01])
def test_another_largest_or_smallest_element_is_that_of_another_weight(change: Array) -> None:
    assert judged(change).of(LINEAR).node_class == "weights differ"


def limit_of(change: Array) -> Quantity | None:
    confidence = judged(change).first.confidence
    assert confidence is not None
    return confidence.of


def test_a_weight_that_is_off_as_a_whole_is_not_told_by_one_element() -> None:
    assert limit_of(WEIGHT * 3) is Quantity.WEIGHT
    assert limit_of(with_largest(1.02)) is Quantity.END


def test_after_a_training_step_ends_may_have_moved() -> None:
    assert judged(with_largest(1.008), step=1).origins == []
