"""Weights that an operator is given and no module owns may be computed: they are rounded three times."""

import ml_dtypes
import numpy as np
import pytest
from library.verdict.made_slices import Array, Call, Judged, judge, values_of

from firstdrift.verdict.judgement import NodeClass
from firstdrift.verdict.movable_thresholds import DEFAULTS

U = DEFAULTS.roundoff_bfloat16
LINEAR = "Functional.linear.0.forward"
OWNER = "Module.proj.Linear.forward.0"


def weight_off(in_one_row: float) -> tuple[Array, Array]:
    """Return a weight of 32 rows, one of which is off."""
    golden = values_of("weight", (32, 32))
    target = golden.copy()
    target[0] *= np.float32(1.0 + in_one_row)
    return golden, target


def given_to_an_operator(in_one_row: float, output: float) -> Judged:
    words = values_of("words", dtype="bfloat16")
    return judge(
        Call("Functional.relu.0.forward", inputs=[(words, words)], outputs=[(words, words)]),
        Call(LINEAR, inputs=[(words, words), weight_off(in_one_row)], outputs=[output]),
        dtype="bfloat16",
    )


def test_a_row_of_a_computed_weight_may_be_off_by_three_roundings() -> None:
    """Of a weight that a module owns it is one rounding, 2 u at most."""
    judged = given_to_an_operator(5.0 * U, 5.0 * U)
    assert judged.of(LINEAR).node_class is not NodeClass.WEIGHTS_DIFFER
    weight = weight_off(5.0 * U)
    words = values_of("words").astype(ml_dtypes.bfloat16)
    owned = judge(Call(OWNER, None, [(words, words)], [0.3], {"weight": weight}), dtype="bfloat16")
    assert owned.of(OWNER).node_class is NodeClass.WEIGHTS_DIFFER


@pytest.mark.parametrize("in_one_row", [7.0 * U, 0.5])
def test_a_row_that_is_further_off_is_another_weight(in_one_row: float) -> None:
    judged = given_to_an_operator(in_one_row, 0.3)
    assert judged.of(LINEAR).node_class is NodeClass.WEIGHTS_DIFFER
