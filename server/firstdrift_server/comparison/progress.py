"""How far a comparison is, and what can be said of it before it is finished."""

from collections.abc import Sequence

from firstdrift.catalogue.comparisons.records import Comparison
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair
from firstdrift.catalogue.jobs.queue import SLICE_STEPS
from firstdrift.verdict.judgement import Findings


def findings_so_far(comparison: Comparison, slices: Sequence[SlicePair]) -> Findings | None:
    """Give the findings of a comparison; before it is finished, those of the slices that are done.

    None before the first slice is done.
    """
    if comparison.findings is not None or not slices:
        return comparison.findings
    from firstdrift.verdict.findings import conclude

    return conclude([pair.judgement for pair in slices])


def slices_expected(comparison: Comparison, slices: Sequence[SlicePair]) -> int:
    """Say how many slices there will be when the job is over; as many as there are until that is known."""
    if comparison.job.is_over:
        return len(slices)
    return max(len(slices), comparison.job.total // SLICE_STEPS)
