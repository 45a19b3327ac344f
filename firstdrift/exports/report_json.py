"""A comparison as the JSON object that the command, the API and the tests share."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

from firstdrift.comparison.report import DumpSummary, Report
from firstdrift.matching.plan import TensorPair
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.judgement import Counts, Finding, Findings
from firstdrift.wording.message import Message
from firstdrift.wording.plain import message_object, message_or_none

INCOMPARABLE_SHOWN = 100


def report_object(report: Report) -> dict[str, Any]:
    """Return the object that `firstdrift compare --json` prints; of what is incomparable, the first 100."""
    return comparison_object(report.golden, report.target, report.counts, report.findings, report.seconds) | {
        "rules": report.options.rules,
        "thresholds": report.options.thresholds.moved(),
        "unpaired_slices": {
            "golden": [coordinates_object(c) for c in report.pairing.unmatched_golden],
            "target": [coordinates_object(c) for c in report.pairing.unmatched_target],
        },
        "notes": [message_object(note) for note in report.notes()],
        "unreadable": report.unreadable,
        "incomparable": [
            incomparable_object(*found) for found in islice(report.incomparable(), INCOMPARABLE_SHOWN)
        ],
        **_algorithms_object(report),
    }


def _algorithms_object(report: Report) -> dict[str, Any]:
    """Say of each algorithm of the user's of how many pairs it gave a number, and where it failed."""
    if not report.additions.algorithms:
        return {}
    from firstdrift.comparison.algorithms import summaries

    return {
        "algorithms": [
            {
                "name": own.name,
                "values": own.values,
                "failed": own.failed,
                "failures": [
                    {"target": node, "tensor": tensor, "reason": remark}
                    for node, tensor, remark in own.failures
                ],
                "not_given": [{"pairs": number, "reason": why} for number, why in own.not_given],
            }
            for own in summaries(report.slices, report.additions.algorithms)
        ]
    }


def comparison_object(
    golden: DumpSummary, target: DumpSummary, counts: Counts, findings: Findings, seconds: Mapping[str, float]
) -> dict[str, Any]:
    """Return the part of the object that does not depend on how the comparison was run."""
    return {
        "summary": message_object(findings.summary),
        "golden": dump_object(golden),
        "target": dump_object(target),
        "counts": counts_object(counts),
        "first_bad_token": finding_object(findings.first_bad_token),
        "first_bad_node": finding_object(findings.first_bad_node),
        "input_differs": [
            coordinates_object(difference.coordinates)
            | {
                "reason": message_object(difference.reason),
                "golden": difference.golden,
                "target": difference.target,
                "tensor": difference.tensor,
            }
            for difference in findings.input_differs
        ],
        "rank_finding": message_or_none(findings.rank_finding),
        "suspects": [finding_object(finding) for finding in findings.suspects],
        "overflow": [
            coordinates_object(overflow.coordinates)
            | {"node": overflow.node, "level": overflow.level, "reason": message_object(overflow.reason)}
            for overflow in findings.overflow
        ],
        "unlike": message_or_none(findings.unlike),
        "seconds": dict(seconds),
    }


def incomparable_object(coordinates: Coordinates, pair: TensorPair, reason: Message) -> dict[str, Any]:
    """Describe a pair that could not be compared."""
    return coordinates_object(coordinates) | {
        "golden": pair.golden_node,
        "target": pair.target_node,
        "tensor": pair.target.label,
        "reason": message_object(reason),
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
        "order_origin": message_object(dump.order_origin),
        "problems": [
            {"file": problem.file, "reason": message_object(problem.reason)} for problem in dump.problems
        ],
    }


def counts_object(counts: Counts) -> dict[str, int]:
    """Name the counts as users know them."""
    return {
        "pairs": counts.pairs,
        "pass": counts.passed,
        "warning": counts.warning,
        "error": counts.error,
        "incomparable": counts.incomparable,
        "unmatched_golden_nodes": counts.unmatched_golden_nodes,
        "unmatched_target_nodes": counts.unmatched_target_nodes,
        "unmatched_golden_tensors": counts.unmatched_golden_tensors,
        "unmatched_target_tensors": counts.unmatched_target_tensors,
    }


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
        "tensor": finding.tensor,
        "class": finding.node_class.value if finding.node_class is not None else None,
        "verdict": finding.verdict.value,
        "reasons": [message_object(reason) for reason in finding.reasons],
        "metrics": dict(finding.metrics),
    }
