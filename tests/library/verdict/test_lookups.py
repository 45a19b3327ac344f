"""An embedding whose ids have equal statistics may have looked up other rows; a rotation looks up none."""

import numpy as np
import pytest
from library.verdict.made_slices import Call, Judged, MadePair, make, values_of
from msgspec.structs import replace

from firstdrift.metrics.measurement import Measurement, MeasurementKind, StatisticDifferences
from firstdrift.metrics.statistics import measure_statistics
from firstdrift.verdict.judgement import NodeClass

EQUAL = StatisticDifferences(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, nonfinite_differs=False)
ENDS = replace(EQUAL, mean=None, norm=None, relative_mean=None, relative_norm=None)
IDS, EMBEDDING = np.arange(16), "Module.embed_tokens.Embedding.forward.0"
GAVE = values_of("rows"), values_of("other rows")


def of_statistics(made: MadePair, ids: StatisticDifferences = EQUAL, *, gave: bool = False) -> MadePair:
    """Let nothing but statistics be known of the ids, and if so, of the last pair."""
    first, *others = made.measurements
    known = replace(first, kind=MeasurementKind.STATISTICS, errors=None, integers=None, differences=ids)
    if gave:
        others[-1] = _as_statistics(others[-1])
    return replace(made, measurements=(known, *others))


def _as_statistics(measured: Measurement) -> Measurement:
    assert measured.golden is not None
    assert measured.target is not None
    return measure_statistics(measured.golden, measured.target)


def embedding(name: str = EMBEDDING, *, has_weight: bool = True) -> MadePair:
    """Make an embedding that gives other rows."""
    weights = {"weight": (values_of("table"),) * 2} if has_weight else {}
    return make(Call(name, inputs=[(IDS, IDS)], parameters=weights, outputs=[GAVE]))


def is_looked_up(judged: Judged, name: str = EMBEDDING) -> bool:
    """Tell whether it was given something else; if not, an error begins at it."""
    looked_up = judged.of(name).rule == "class.input_differs"
    assert looked_up is not (judged.of(name).node_class is NodeClass.SOURCE)
    return looked_up


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (EMBEDDING, True),
        ("Module.rotary_emb.RotaryEmbedding.forward.0", False),
        ("Module.rotary_emb.LlamaRotaryEmbedding.forward.0", False),
    ],
)
def test_what_is_made_of_positions_looks_up_no_rows(name: str, *, expected: bool) -> None:
    assert is_looked_up(of_statistics(embedding(name)).judge(), name) is expected


def test_of_a_weight_that_was_not_recorded_nothing_is_concluded() -> None:
    assert not is_looked_up(of_statistics(embedding(has_weight=False)).judge())


@pytest.mark.parametrize(("ids", "expected"), [(ENDS, True), (EQUAL, False)], ids=["ends", "sums"])
def test_ids_of_equal_sums_are_the_same_but_for_their_order(
    ids: StatisticDifferences, *, expected: bool
) -> None:
    assert is_looked_up(of_statistics(embedding(), ids, gave=True).judge()) is expected
