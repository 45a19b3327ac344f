"""What healthy runs show: the errors of the nodes of one slice of a run that is known to be good.

    golden ── compared with ── another healthy run    ─▶  Noise: the error of each node
       └───── compared with ── target                 ─▶  an error begins where it exceeds that noise

It can only excuse. Nodes go by the name that the golden dump gives them, which both comparisons share.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from firstdrift.verdict.judgement import RowJudgement
from firstdrift.verdict.tree import TreeRow


class Noise(Struct, frozen=True):
    """The errors of a healthy run, by the golden names of its nodes.

    Attributes:
        inputs: the worst error of the inputs of a node; likewise outputs. Nodes of which none is known are
            left out.
    """

    inputs: Mapping[str, float] = field(default_factory=dict)
    outputs: Mapping[str, float] = field(default_factory=dict)

    def of_input(self, row: TreeRow) -> float:
        """Return the error that the inputs of a row have in the healthy run; 0 if that is not known."""
        return _worst_of(self.inputs, row)

    def of_output(self, row: TreeRow) -> float:
        """Return the error that the outputs of a row have in the healthy run; 0 if that is not known."""
        return _worst_of(self.outputs, row)


def _worst_of(errors: Mapping[str, float], row: TreeRow) -> float:
    return max((errors.get(name, 0.0) for name in row.golden), default=0.0) if errors else 0.0


QUIET = Noise()
"""No healthy run is known."""


def noise_of(rows: Sequence[TreeRow], judged: Sequence[RowJudgement]) -> Noise:
    """Take the errors of the nodes of a slice that was judged for what healthy runs show."""
    said = [(row, one) for row, one in zip(rows, judged, strict=True) if row.match is not None]
    return Noise(
        inputs={
            name: one.input_error for row, one in said if one.input_error is not None for name in row.golden
        },
        outputs={
            name: one.output_error for row, one in said if one.output_error is not None for name in row.golden
        },
    )
