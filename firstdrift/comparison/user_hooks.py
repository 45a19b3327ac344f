"""What a comparison in a notebook or a terminal may have beyond its options.

Algorithms run code and a postprocess file names other files, so that neither is part of `Options`, which
may come from a web page.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from firstdrift.matching.plan import SlicePlan
from firstdrift.metrics.measurement import Measurement

if TYPE_CHECKING:
    from firstdrift.comparison.algorithms import Algorithm
    from firstdrift.comparison.postprocess import Postprocess


class Additions(Struct, frozen=True):
    """What is done beside what `Options` say: algorithms give numbers, postprocessing changes tensors."""

    algorithms: "tuple[Algorithm, ...]" = ()
    postprocess: "Postprocess | None" = None

    def prepare(self, plan: SlicePlan) -> SlicePlan:
        """Declare in a plan what is done to its tensors."""
        if self.postprocess is None:
            return plan
        from firstdrift.comparison.postprocess import apply

        return apply(self.postprocess, plan)

    def measure(self, plan: SlicePlan, measurements: Sequence[Measurement]) -> list[Measurement]:
        """Add the results of the algorithms to the measurements of a plan."""
        if not self.algorithms:
            return list(measurements)
        from firstdrift.comparison.algorithms import with_results

        return with_results(self.algorithms, plan, measurements)


NOTHING_MORE: Final = Additions()
