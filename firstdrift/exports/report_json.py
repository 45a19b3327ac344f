"""A comparison as the JSON object that the command, the API and the tests share."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, starmap
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from firstdrift.comparison.outlines import LISTED
from firstdrift.comparison.report import DumpSummary, Report
from firstdrift.matching.plan import TensorPair
from firstdrift.model.slice import Coordinates, Problem, Unfinished
from firstdrift.verdict.confidence import Confidence
from firstdrift.verdict.coverage import Coverage
from firstdrift.verdict.judgement import (
    Counts,
    Finding,
    Findings,
    InputDifference,
    NotJudged,
    Overflow,
    SystematicDifference,
)
from firstdrift.wording.message import Message

if TYPE_CHECKING:
    from firstdrift.comparison.algorithms import Summary


def report_object(report: Report) -> dict[str, Any]:
    """Return the object that `firstdrift compare --json` prints; of what is incomparable, the first 100."""
    return comparison_object(report.golden, report.target, report.counts, report.findings, report.seconds) | {
        "rules": report.options.rules,
        "thresholds": report.options.thresholds.moved(),
        "unpaired_slices": {
            "golden": list(map(coordinates_object, report.pairing.unmatched_golden)),
            "target": list(map(coordinates_object, report.pairing.unmatched_target)),
        },
        "notes": list(report.notes()),
        "unreadable": report.unreadable,
        "incomparable": list(starmap(incomparable_object, islice(_incomparable(report), LISTED))),
        **_algorithms_object(report),
    }


def _incomparable(report: Report) -> Iterator[tuple[Coordinates, TensorPair, Message]]:
    """Yield what could not be compared, but for what follows from ties, which is counted beside them."""
    for outline in report.outlines:
        for pair, reason in outline.listed:
            yield outline.judgement.coordinates, pair, reason


def _algorithms_object(report: Report) -> dict[str, Any]:
    """Say of each algorithm of the user's of how many pairs it gave a number, and where it failed."""
    if not report.additions.algorithms:
        return {}
    from firstdrift.comparison.algorithms import summaries

    return {"algorithms": list(map(_algorithm_object, summaries(report.slices, report.additions.algorithms)))}


def _algorithm_object(own: "Summary") -> dict[str, Any]:
    return {
        "name": own.name,
        "values": own.values,
        "failed": own.failed,
        "failures": [
            dict(zip(("target", "tensor", "reason"), failure, strict=True)) for failure in own.failures
        ],
        "not_given": [{"pairs": number, "reason": why} for number, why in own.not_given],
    }


def comparison_object(
    golden: DumpSummary, target: DumpSummary, counts: Counts, findings: Findings, seconds: Mapping[str, float]
) -> dict[str, Any]:
    """Return the part of the object that does not depend on how the comparison was run."""
    return {
        "summary": findings.summary,
        "golden": dump_object(golden),
        "target": dump_object(target),
        "counts": counts_object(counts),
        "first_bad_token": finding_object(findings.first_bad_token),
        "first_bad_node": finding_object(findings.first_bad_node),
        "input_differs": list(map(placed_object, findings.input_differs)),
        "rank_finding": findings.rank_finding,
        "suspects": list(map(finding_object, findings.suspects)),
        "overflow": list(map(placed_object, findings.overflow)),
        "unlike": findings.unlike,
        "systematic": list(map(placed_object, findings.systematic)),
        "coverage": coverage_object(findings.coverage),
        "ties": findings.ties,
        "not_judged": _not_judged_object(findings.not_judged),
        "seconds": dict(seconds),
    }


def coverage_object(coverage: Coverage | None) -> dict[str, Any] | None:
    """Say how much of the golden dump was compared; null of what an earlier version compared."""
    return None if coverage is None else asdict(coverage) | {"said": coverage.said}


def _not_judged_object(found: NotJudged | None) -> dict[str, Any] | None:
    return None if found is None else {"why": found.why, "remedy": found.remedy.value}


def incomparable_object(coordinates: Coordinates, pair: TensorPair, reason: Message) -> dict[str, Any]:
    """Describe a pair that could not be compared."""
    return coordinates_object(coordinates) | {
        "golden": pair.golden_node,
        "target": pair.target_node,
        "tensor": pair.target.label,
        "reason": reason,
    }


def dump_object(dump: DumpSummary) -> dict[str, Any]:
    """Describe a dump."""
    return {
        "path": dump.path,
        "format": dump.format,
        "slices": dump.slices,
        "compared": dump.compared,
        "nodes": dump.nodes,
        "tensors": dump.tensors,
        "order_origin": dump.order_origin,
        "problems": problem_objects(dump.problems),
        "unfinished": unfinished_objects(dump.unfinished),
    }


def unfinished_objects(found: Iterable[Unfinished]) -> list[dict[str, Any]]:
    """Describe the slices that are still being written."""
    return [coordinates_object(one.listing.coordinates) | {"reason": one.reason} for one in found]


def problem_objects(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """Describe what could not be used."""
    return list(map(asdict, problems))


def placed_object(found: InputDifference | Overflow | SystematicDifference) -> dict[str, Any]:
    """Describe what was found in a slice: an input that differs, an overflow, what all of it has."""
    fields = asdict(found)
    fields.pop("pair", None)  # a number of this run alone
    return coordinates_object(fields.pop("coordinates")) | fields


def counts_object(counts: Counts) -> dict[str, int]:
    """Name the counts as users know them."""
    return {"pass" if name == "passed" else name: count for name, count in asdict(counts).items()}


def coordinates_object(coordinates: Coordinates) -> dict[str, Any]:
    """Name the coordinates of a slice; null where the format has none, `ranks` only if it was merged."""
    return {
        "step": coordinates.step,
        "rank": coordinates.rank,
        **({"ranks": list(coordinates.merged)} if coordinates.merged is not None else {}),
        "token": coordinates.token,
        "micro_step": coordinates.micro_step,
    }


def _where(finding: Finding) -> dict[str, Any]:
    """Name the slice of a finding, and the rank that is off, of the golden dump if only that was merged."""
    found = coordinates_object(finding.coordinates)
    if finding.golden_ranks is not None:
        return found | {"golden_rank": finding.on_rank, "golden_ranks": list(finding.golden_ranks)}
    return found if finding.on_rank is None else found | {"rank": finding.on_rank}


def finding_object(finding: Finding | None) -> dict[str, Any] | None:
    """Describe a finding; null for none."""
    if finding is None:
        return None
    return _where(finding) | {
        "golden": finding.golden,
        "target": finding.target,
        "module": finding.module,
        "direction": finding.direction.value,
        "place": finding.place,
        "tensor": finding.tensor,
        "class": finding.node_class.value if finding.node_class is not None else None,
        "verdict": finding.verdict.value,
        "reasons": list(finding.reasons),
        "shown": list(finding.shown),
        "cause": list(finding.cause),
        "metrics": dict(finding.metrics),
        "confidence": _confidence_object(finding.confidence),
    }


def _confidence_object(confidence: Confidence | None) -> dict[str, Any] | None:
    """Say how sure a finding is; null where that is not known, as by the rules of other tools."""
    if confidence is None:
        return None
    return {
        "certainty": confidence.certainty.value,
        "margin": confidence.margin,
        "limit": confidence.limit,
        "basis": confidence.basis.value,
        "slices": confidence.slices,
        "said": confidence.said,
    }
