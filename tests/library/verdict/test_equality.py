"""Two runs in which nothing differs are said to be equal, and by what."""

import numpy as np
import pytest
from library.verdict.made_slices import Call, judge, make, values_of
from msgspec.structs import replace

from firstdrift.metrics.measurement import Measurement, MeasurementKind, StatisticDifferences
from firstdrift.verdict.equality import equality_of
from firstdrift.verdict.evidence import evidence_of
from firstdrift.verdict.judgement import Equality

CALL = Call("Functional.linear.0.forward", inputs=[0.0], outputs=[0.0])
EQUAL = StatisticDifferences(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, nonfinite_differs=False)


def test_equal_values_are_equal_bit_for_bit() -> None:
    assert judge(CALL).said.equality is Equality.BITS


def test_what_differs_in_the_last_bit_is_not_equal() -> None:
    values = values_of("words")
    other = values.copy()
    other[0, 0] = np.nextafter(other[0, 0], np.float32(9.0))
    assert judge(CALL, Call("Functional.relu.0.forward", outputs=[(values, other)])).said.equality is None


def test_zeros_of_another_sign_are_equal_values_of_other_bits() -> None:
    zeros = np.zeros((4, 4), np.float32)
    assert judge(Call("Functional.relu.0.forward", outputs=[(zeros, -zeros)])).said.equality is None


def test_equal_statistics_are_no_proof_of_bits() -> None:
    made = make(CALL)
    known = made.measurements[0]
    first = replace(known, kind=MeasurementKind.STATISTICS, errors=None, differences=EQUAL, bits=None)
    assert (
        equality_of(evidence_of(made.plan, made.rows, [first, *made.measurements[1:]])) is Equality.STATISTICS
    )


@pytest.mark.parametrize("measurements", [[], [Measurement(MeasurementKind.INCOMPARABLE)] * 2])
def test_nothing_is_said_where_nothing_or_not_all_was_compared(measurements: list[Measurement]) -> None:
    made = make(CALL) if measurements else make()
    assert equality_of(evidence_of(made.plan, made.rows, measurements)) is None
