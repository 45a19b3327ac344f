"""The exit status of a comparison: 0 no fault, 1 a fault, 2 not known.

models differ, files unreadable, or too little compared or judged  ─▶ 2   a fault that was found goes first
"""

from firstdrift.comparison.report import Report
from firstdrift.exits import FOUND, UNUSABLE
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.bit_count import BitCount
from firstdrift.verdict.confidence import Certainty
from firstdrift.verdict.judgement import Findings


def exit_status(report: Report, fail_on: str = "error") -> int:
    """Return the exit status of the command.

    A fault is a verdict of `fail_on`, or a finding that is at least as sure as it says.
    """
    if report.findings.unlike is not None:
        return UNUSABLE
    if _fails(report, fail_on):
        return FOUND
    nothing = report.counts.incomparable == report.counts.pairs or _nothing_was_judged(report)
    nothing = nothing or _bits(report).proves_nothing or report.findings.not_judged is not None
    return UNUSABLE if report.unreadable or nothing else 0


def _bits(report: Report) -> BitCount:
    """Sum up what is known of bits, under the rule set that looks at nothing else."""
    known = (outline.judgement.bits for outline in report.outlines)
    return sum((bits.all for bits in known if bits is not None), BitCount())


def _fails(report: Report, fail_on: str) -> bool:
    findings = report.findings
    if any(one.is_fault for one in findings.systematic):
        return True
    if fail_on in (Certainty.LIKELY, Certainty.CERTAIN):
        return _is_sure(findings, Certainty(fail_on))
    if report.counts.error or findings.first_bad_node or findings.first_bad_token or findings.suspects:
        return True
    return fail_on == "warning" and bool(report.counts.warning)


def _is_sure(findings: Findings, least: Certainty) -> bool:
    """Tell whether a finding is sure enough; one of which that is not known is."""
    node = findings.first_bad_node or findings.first_bad_token
    found = ([node] if node is not None else []) + list(findings.suspects)
    return any(one.confidence is None or one.confidence.certainty.reaches(least) for one in found)


def _nothing_was_judged(report: Report) -> bool:
    """Tell whether a rank was given another input in its first slice: that the runs agree is not known.

    Later, one of two nearly equal tokens may have been chosen, which is no fault.
    """
    inputs = (one.coordinates for one in report.findings.input_differs)
    differs = {_place(at) for at in inputs if not at.micro_step}
    first: dict[int | None, Coordinates] = {}
    for outline in report.outlines:
        at = outline.judgement.coordinates
        first[at.rank] = min(first.get(at.rank, at), at, key=Coordinates.sort_key)
    return not first or any(_place(at) in differs for at in first.values())


def _place(at: Coordinates) -> tuple[int | None, int | None, int | None]:
    return (at.step, at.rank, at.token)
