"""The exit status of a comparison: 0 no fault, 1 a fault, 2 not known.

models differ, files unreadable, or nothing compared or judged  ─▶ 2      a fault that was found goes first
"""

from firstdrift.comparison.report import Report
from firstdrift.exits import FOUND, UNUSABLE
from firstdrift.verdict.bit_count import BitCount


def exit_status(report: Report, fail_on: str = "error") -> int:
    """Return the exit status of the command; a verdict of `fail_on`, "error" or "warning", is a fault."""
    if report.findings.unlike is not None:
        return UNUSABLE
    if _fails(report, fail_on):
        return FOUND
    nothing = report.counts.incomparable == report.counts.pairs or _nothing_was_judged(report)
    nothing = nothing or _bits(report).proves_nothing
    return UNUSABLE if report.unreadable or nothing else 0


def _bits(report: Report) -> BitCount:
    """Sum up what is known of bits, under the rule set that looks at nothing else."""
    known = (result.judgement.bits for result in report.slices)
    return sum((bits.all for bits in known if bits is not None), BitCount())


def _fails(report: Report, fail_on: str) -> bool:
    findings = report.findings
    if report.counts.error or findings.first_bad_node or findings.first_bad_token or findings.suspects:
        return True
    return fail_on == "warning" and bool(report.counts.warning)


def _nothing_was_judged(report: Report) -> bool:
    """Tell whether the runs were given different inputs from the beginning: that they agree is not known."""
    differs = {
        (one.coordinates.step, one.coordinates.rank, one.coordinates.token)
        for one in report.findings.input_differs
        if not one.coordinates.micro_step
    }
    places = (one.judgement.coordinates for one in report.slices)
    return all((place.step, place.rank, place.token) in differs for place in places)
