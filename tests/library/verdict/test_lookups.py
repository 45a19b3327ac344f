"""An embedding whose ids have equal statistics may have looked up other rows; a rotation looks up none."""

import numpy as np
import pytest
from library.verdict.made_slices import Call, MadePair, make, values_of
from msgspec.structs import replace

from firstdrift.metrics.measurement import MeasurementKind, StatisticDifferences
from firstdrift.verdict.judgement import NodeClass

EQUAL = StatisticDifferences(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, nonfinite_differs=False)
IDS = np.arange(16)


def of_equal_statistics(made: MadePair) -> MadePair:
    """Let nothing but statistics be known of the first pair."""
    first, *others = made.measurements
    ids = replace(first, kind=MeasurementKind.STATISTICS, errors=None, integers=None, differences=EQUAL)
    return replace(made, measurements=(ids, *others))


@pytest.mark.parametrize(
    ("name", "is_looked_up"),
    [
        ("Module.embed_tokens.Embedding.forward.0", True),
        ("Module.rotary_emb.RotaryEmbedding.forward.0", False),
        ("Module.rotary_emb.LlamaRotaryEmbedding.forward.0", False),
    ],
)
def test_what_is_made_of_positions_looks_up_no_rows(name: str, *, is_looked_up: bool) -> None:
    gave = values_of("rows"), values_of("other rows")
    judged = of_equal_statistics(make(Call(name, inputs=[(IDS, IDS)], outputs=[gave]))).judge()
    assert (judged.of(name).rule == "class.input_differs") is is_looked_up
    assert (judged.of(name).node_class is NodeClass.SOURCE) is not is_looked_up
