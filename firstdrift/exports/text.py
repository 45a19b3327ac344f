"""A report as text for a terminal.

Names come from dumps and may hold anything: what is not printable is spelled out, so that no name can
colour the text, move the cursor or look like another line.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import starmap
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from firstdrift.comparison.inspection import Inspection, SliceInspection
from firstdrift.comparison.report import Alike, DumpSummary, Report
from firstdrift.exports.report_json import coordinates_object, problem_objects, unfinished_objects
from firstdrift.groups import fields_of, firsts
from firstdrift.metrics.measurement import RELATIVE_ERRORS
from firstdrift.model.slice import Coordinates, Problem, Unfinished, only_on_one_side
from firstdrift.operators.unknown import unknown_messages
from firstdrift.paths import printable
from firstdrift.plurals import counted
from firstdrift.remote.addresses import name_of
from firstdrift.verdict.judgement import Counts, Finding, Findings, InputDifference, Overflow, Remedy
from firstdrift.wording.message import Message
from firstdrift.wording.relative_error import percentage
from firstdrift.wording.text import number, text_of, word

if TYPE_CHECKING:
    from firstdrift.comparison.algorithms import Summary

_NAMED = re.compile(r" {0,2}[a-z][\w.]* {2,}")
_SHOWN = 10
_SUGGESTED: Final = "matches.json"
_Incomparable: TypeAlias = tuple[Coordinates, Alike]
_COUNTED = ("modules", "operators", "tensors", "with_data", "with_statistics", "with_digest", "unreadable")


def _as_lines(lines: Iterable[str]) -> str:
    return "\n".join(map(printable, lines))


def folded(text: str, width: int) -> str:
    """Fold lines that are too long between words; what follows stands where the value of the line began."""
    return "\n".join(piece for line in text.split("\n") for piece in _fold(line, width) or [line])


def _fold(line: str, width: int) -> list[str]:
    from textwrap import wrap

    named = _NAMED.match(line)
    indent = " " * len(named[0]) if named else ""
    return wrap(
        line,
        max(width, 40),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )


def _title(name: str) -> str:
    """Return a title of the catalogue's table `terminal`."""
    return text_of(Message.of(f"terminal.{name}"))


def _row(title: str, value: object) -> str:
    return f"{_title(title):<13} {value}"


def _inner(title: str, value: object) -> str:
    """Write a row that belongs to the line before."""
    return f"  {_title(title):<11} {value}"


def _listed(found: Sequence[Any], line: Callable[..., str], *, is_cut: bool = False) -> list[str]:
    """Write a line for each of the first few, and how many more there are; `is_cut` if not all are known."""
    more = [f"  ... and {'at least ' * is_cut}{len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return list(map(line, found[:_SHOWN])) + more


def report_text(report: Report) -> str:
    """Lay a report out: the sentence, the findings, the counts."""
    findings = report.findings
    found = [
        *_finding_lines("first_bad_token", findings.first_bad_token),
        *_first_node_lines(findings.first_bad_node),
        *_other_lines(findings),
    ]
    lines = [text_of(findings.summary), "", *found, *([""] if found else [])]
    lines += [_dump_line("golden", report.golden), _dump_line("target", report.target)]
    lines += _count_lines(report.counts) if report.slices else []
    lines += _coverage_lines(report)
    if moved := report.options.thresholds.moved():
        lines.append(
            _row("thresholds", ", ".join(f"{name}={number(value, 'g')}" for name, value in moved.items()))
        )
    lines += _listed(report.notes(), lambda note: _row("note", text_of(note)))
    alone = only_on_one_side(report.pairing.unmatched_golden, report.pairing.unmatched_target)
    lines += [_row("unpaired", text_of(said)) for said in alone]
    lines += _problem_lines(report.golden.problems, "golden")
    lines += _problem_lines(report.target.problems, "target")
    lines += _listed(_by_reason(report), lambda alike: _incomparable_line(*alike))
    lines += _algorithm_lines(report)
    lines.append(_row("time", f"{report.seconds['total']:.2f} s"))
    return _as_lines(lines)


def _coverage_lines(report: Report) -> list[str]:
    """Say how much was compared, and which command helps where that is too little."""
    findings = report.findings
    lines = [_row("coverage", text_of(findings.coverage.said))] if findings.coverage is not None else []
    if findings.not_judged is not None and findings.not_judged.remedy is Remedy.MAPPING:
        dumps = {"golden": quote(report.golden.path), "target": quote(report.target.path)}
        command = Message.of("coverage.suggest_mapping", **dumps, file=_SUGGESTED)
        lines.append(_row("next", text_of(command)))
    return lines


def _by_reason(report: Report) -> list[tuple[int, _Incomparable]]:
    """Put together what could not be compared for one reason: how many, and the first."""
    found: defaultdict[tuple[str, ...], list[_Incomparable]] = defaultdict(list)
    for outline in report.outlines:
        for alike in outline.incomparable:
            found[alike.why].append((outline.judgement.coordinates, alike))
    return [(sum(one.count for _, one in alike), alike[0]) for alike in found.values()]


def _incomparable_line(number: int, first: _Incomparable) -> str:
    coordinates, alike = first
    where = f"{text_of(coordinates.name())}, {alike.first.target_node} {alike.first.target.label}"
    said = f"{counted(number, 'tensor')}, first {where}" if number > 1 else where
    return _row("incomparable", f"{said}: {text_of(alike.reason)}")


def _algorithm_lines(report: Report) -> list[str]:
    """Say of each algorithm of the user's of how many pairs it gave a number, and why not of others."""
    if not report.additions.algorithms:
        return []
    from firstdrift.comparison.algorithms import summaries

    return [line for own in summaries(report.slices, report.additions.algorithms) for line in _summary(own)]


def _summary(own: "Summary") -> list[str]:
    left = f", {sum(firsts(own.not_given))} not given" if own.not_given else ""
    said = f"{own.name}: {counted(own.values, 'number')}, {own.failed} failed{left}"
    return [
        _row("algorithm", said),
        *_listed(own.not_given, lambda left: _inner("not_given", f"{counted(left[0], 'pair')}: {left[1]}")),
        *_listed(own.reasons, lambda failed: _failure_line(failed[0], *failed[1])),
        *([_inner("hint", text_of(own.hint))] if own.hint else []),
    ]


def _failure_line(count: int, node: str, tensor: str, remark: str) -> str:
    others = f" and {counted(count - 1, 'other pair')}" if count > 1 else ""
    return _inner("failed", f"{node} {tensor}{others}: {remark}")


def _first_node_lines(finding: Finding | None) -> list[str]:
    if finding is not None and finding.is_suspected:
        return _finding_lines("first_suspect", finding)
    return _finding_lines("first_bad_node", finding)


def _finding_lines(title: str, finding: Finding | None) -> list[str]:
    if finding is None:
        return []
    lines = [
        f"{_title(title)}: {text_of(finding.coordinates.name())}, {_place(finding)}",
        _inner("golden", finding.golden),
        _inner("target", finding.target),
    ]
    lines += [_inner("rank", _rank(finding))] if finding.on_rank is not None else []
    lines += [_inner("class", word("node_class", finding.class_shown))] if finding.class_shown else []
    lines += [_inner("because", text_of(reason)) for reason in finding.reasons]
    lines += [_inner("cause", text_of(sign)) for sign in finding.cause]
    lines += [_inner("sure", text_of(finding.confidence.said))] if finding.confidence is not None else []
    numbers = _metrics(finding.metrics)
    return lines + ([f"  {finding.tensor or 'tensor':<11} {numbers}"] if numbers else [])


def _place(finding: Finding) -> str:
    return place if isinstance(place := finding.place, str) else text_of(place)


def _rank(finding: Finding) -> str:
    return f"{finding.on_rank}{' of the golden dump' if finding.golden_ranks is not None else ''}"


_METRICS: Final = {
    "relative_l2": "relative_l2",
    "worst_row_relative_l2": "worst_row_relative_l2",
    "cosine_similarity": "cosine_similarity",
    "kl_divergence": "kl_divergence",
    "max_absolute_error": "max_absolute_error",
    "error_bound": "relative_l2 at least",
}


def _metrics(values: Mapping[str, float | int | None]) -> str:
    known = (
        (metric, name, value)
        for metric, name in _METRICS.items()
        if (value := values.get(metric)) is not None
    )
    return ", ".join(f"{name} {_written(metric, float(value))}" for metric, name, value in known)


def _written(metric: str, value: float) -> str:
    if metric in RELATIVE_ERRORS and math.isfinite(value):
        return percentage(value)
    # Cosine similarity is nearly one of what differs by a percent.
    return number(value, ".6g" if metric == "cosine_similarity" else "")


def _other_lines(findings: Findings) -> list[str]:
    return [
        *([text_of(findings.rank_finding)] if findings.rank_finding else []),
        *([_row("ties", text_of(findings.ties))] if findings.ties else []),
        *_listed(findings.input_differs, _input_line),
        *map(_suspect_line, findings.suspects),
        *_listed(findings.overflow, _overflow_line, is_cut=findings.overflow_is_cut),
    ]


def _input_line(difference: InputDifference) -> str:
    return (
        f"{_title('input_differs')}: {text_of(difference.coordinates.name())}: {text_of(difference.reason)}"
    )


def _overflow_line(overflow: Overflow) -> str:
    return f"{_title('overflow')} ({overflow.level}): {overflow.node}: {text_of(overflow.reason)}"


def _suspect_line(suspect: Finding) -> str:
    known = [word("node_class", suspect.class_shown)] if suspect.class_shown else []
    known += [f"rank {_rank(suspect)}"] if suspect.on_rank is not None else []
    said = f" ({', '.join(known)})" if known else ""
    reason = text_of(suspect.reasons[0]) if suspect.reasons else ""
    return f"{_title('suspect')}: {_place(suspect)}{said}: {reason}"


def _dump_line(side: str, dump: DumpSummary) -> str:
    slices = counted(dump.slices, "slice")
    said = [dump.format, slices if dump.is_whole else f"{dump.compared} of {slices} compared"]
    if dump.nodes:  # what no slice was read of is not known to be empty
        said += [counted(dump.nodes, "node"), counted(dump.tensors, "tensor")]
    if dump.unfinished:
        said.append(text_of(Message.of("growth.more", slices=len(dump.unfinished))))
    return _row(side, f"{dump.path}: {', '.join(said)}")


def _count_lines(counts: Counts) -> list[str]:
    golden = _left_over("golden", counts.unmatched_golden_nodes, counts.unmatched_golden_tensors)
    target = _left_over("target", counts.unmatched_target_nodes, counts.unmatched_target_tensors)
    verdicts = (
        f"{counts.passed} pass, {counts.warning} warning, {counts.error} error, "
        f"{counts.incomparable} incomparable"
    )
    return [_row("pairs", f"{counts.pairs}: {verdicts}"), _row("unmatched", f"{golden}; {target}")]


def _left_over(side: str, nodes: int, tensors: int) -> str:
    return f"{side} {counted(nodes, 'node')}, {counted(tensors, 'tensor')}"


def _problem_lines(problems: Sequence[Problem], side: str) -> list[str]:
    return _listed(
        problems, lambda problem: _row("problem", f"{side}: {problem.file}: {text_of(problem.reason)}")
    )


def inspection_object(found: Inspection) -> dict[str, Any]:
    """Return the object that `firstdrift inspect --json` prints."""
    return {
        "path": name_of(found.dump.path),
        "format": found.dump.format,
        "evidence": list(found.dump.evidence),
        "attributes": found.dump.attributes,
        "problems": problem_objects(found.dump.problems),
        "slices": list(map(_slice_object, found.slices)),
        "unknown_names": [
            {"name": one.name, "kind": "operator" if one.is_operator else "module", "count": one.count}
            for one in found.unknown
        ],
        "damaged_slices": [
            coordinates_object(coordinates) | problem_objects([problem])[0]
            for coordinates, problem in found.damaged
        ],
        "unfinished_slices": unfinished_objects(found.dump.unfinished),
    }


def _slice_object(one: SliceInspection) -> dict[str, Any]:
    return coordinates_object(one.coordinates) | {
        "nodes": one.modules + one.operators,
        **fields_of(one, _COUNTED),
        "order_origin": one.order_origin.message,
        "problems": problem_objects(one.problems),
    }


def inspection_text(found: Inspection) -> str:
    """Lay an inspection out for a terminal."""
    dump = found.dump
    origins = sorted({text_of(one.order_origin.message) for one in found.slices})
    return _as_lines(
        [
            f"{name_of(dump.path)}: {dump.format}",
            *(_inner("because", text_of(clause)) for clause in dump.evidence),
            *(f"  {name:<11} {_worded(value)}" for name, value in dump.attributes.items()),
            *(line for one in found.slices for line in _slice_lines(one)),
            *(
                f"{text_of(at.name())}: damaged: {lost.file}: {text_of(lost.reason)}"
                for at, lost in found.damaged
            ),
            *map(_unfinished_line, dump.unfinished),
            *map(text_of, unknown_messages(found.unknown)),
            *(f"{_title('order')}: {origin}" for origin in origins),
            *_problem_lines(dump.problems, "dump"),
        ]
    )


def _unfinished_line(one: Unfinished) -> str:
    said = Message.of("growth.unfinished", reason=one.reason)
    return f"{text_of(one.listing.coordinates.name())}: {text_of(said)}"


def _worded(value: str | Message) -> str:
    return value if isinstance(value, str) else text_of(value)


def _slice_lines(one: SliceInspection) -> list[str]:
    there = ((one.modules, "module"), (one.operators, "operator"), (one.tensors, "tensor"))
    known = (
        f"{one.with_data} with data, {one.with_statistics} with statistics, "
        f"{one.with_digest} with digests, {one.unreadable} unreadable"
    )
    line = f"{text_of(one.coordinates.name())}: {', '.join(starmap(counted, there))} ({known})"
    return [line, *_problem_lines(one.problems, "  here")]
