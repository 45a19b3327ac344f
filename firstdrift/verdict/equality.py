"""Whether nothing at all differs in a slice: then that is said, and not that two runs agree within rounding.

all pairs bit-equal, by values or digests        ─▶ bits
as far as statistics tell of some, all equal     ─▶ statistics
anything else                                    ─▶ None
"""

from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.verdict.bit_rules import judge_bitwise
from firstdrift.verdict.evidence import Evidence
from firstdrift.verdict.judgement import Equality, Verdict


def equality_of(evidence: Evidence) -> Equality | None:
    """Say by what all pairs of a slice are equal; None if one differs, or could not be compared."""
    errors, measurements = evidence.pair_errors, evidence.measurements
    if not errors or any(error.value != 0.0 for error in errors):
        return None
    judged = judge_bitwise(evidence.plan, measurements, errors)
    if any(one.verdict is Verdict.ERROR for one in judged):
        return None
    unproven = [
        measured.kind
        for measured, one in zip(measurements, judged, strict=True)
        if one.verdict is not Verdict.PASS
    ]
    if not unproven:
        return Equality.BITS
    return Equality.STATISTICS if set(unproven) == {MeasurementKind.STATISTICS} else None
