"""What the tensor of a pair is joined from, for whoever measures it or looks at it."""

from firstdrift.matching.plan import Joining, TensorPair
from firstdrift.metrics.joined import Parts


def parts_of(pair: TensorPair) -> Parts:
    """Return the parts of a pair, and how they make up one tensor."""
    return Parts(
        pair.golden_parts or pair.target_parts,
        are_golden=bool(pair.golden_parts),
        summed=pair.joining is Joining.SUMMED,
        rotated=pair.joining is Joining.ROTATED,
        of_experts=pair.joining is Joining.OF_EXPERTS,
        stacked=pair.joining is Joining.STACKED,
    )
