"""A report as text for a terminal.

Names come from dumps and may hold anything: what is not printable is spelled out, so that no name can
colour the text, move the cursor or look like another line.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from firstdrift.comparison.inspection import Inspection, SliceInspection
from firstdrift.comparison.report import DumpSummary, Report
from firstdrift.exports.report_json import coordinates_object
from firstdrift.model.slice import Problem
from firstdrift.operators.unknown import unknown_messages
from firstdrift.plurals import counted
from firstdrift.verdict.judgement import Counts, Finding, Findings
from firstdrift.wording.plain import message_object
from firstdrift.wording.text import text_of

_NAMED = re.compile(r" {0,2}[a-z][\w.]* {2,}")
_SHOWN = 10


def printable(text: str) -> str:
    r"""Spell out control and format characters: a escape character becomes `\x1b`, a new line `\n`."""
    if text.isprintable():
        return text
    return "".join(
        mark if mark.isprintable() else mark.encode("unicode_escape").decode("ascii") for mark in text
    )


def _as_lines(lines: Iterable[str]) -> str:
    return "\n".join(printable(line) for line in lines)


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


def report_text(report: Report) -> str:
    """Lay a report out: the sentence, the findings, the counts."""
    findings = report.findings
    found = _finding_lines("first bad token", findings.first_bad_token)
    found += _finding_lines("first bad node", findings.first_bad_node)
    found += _other_lines(findings)
    lines = [text_of(findings.summary), "", *found, *([""] if found else [])]
    lines += [_dump_line("golden", report.golden), _dump_line("target", report.target)]
    lines += _count_lines(report.counts) if report.slices else []
    if moved := report.options.thresholds.moved():
        lines.append(f"thresholds    {', '.join(f'{name}={value:g}' for name, value in moved.items())}")
    notes = report.notes()
    lines += [f"note          {text_of(note)}" for note in notes[:_SHOWN]] + _more(notes)
    for side, left in (
        ("golden", report.pairing.unmatched_golden),
        ("target", report.pairing.unmatched_target),
    ):
        lines += [f"unpaired      {side}: {coordinates.describe()}" for coordinates in left[:_SHOWN]]
        lines += _more(left)
    for side, dump in (("golden", report.golden), ("target", report.target)):
        lines += _problem_lines(dump.problems, side)
    lines += _incomparable_lines(report)
    lines += _algorithm_lines(report)
    lines.append(f"time          {report.seconds['total']:.2f} s")
    return _as_lines(lines)


def _incomparable_lines(report: Report) -> list[str]:
    found = list(report.incomparable())
    lines = [
        f"incomparable  {coordinates.describe()}, {pair.target_node} {pair.target.label}: {text_of(reason)}"
        for coordinates, pair, reason in found[:_SHOWN]
    ]
    return lines + _more(found)


def _algorithm_lines(report: Report) -> list[str]:
    """Say of each algorithm of the user's of how many pairs it gave a number, and why not of others."""
    if not report.additions.algorithms:
        return []
    from firstdrift.comparison.algorithms import summaries

    lines = []
    for own in summaries(report.slices, report.additions.algorithms):
        left = f", {sum(number for number, _ in own.not_given)} not given" if own.not_given else ""
        lines.append(f"algorithm     {own.name}: {counted(own.values, 'number')}, {own.failed} failed{left}")
        lines += [f"  not given   {counted(number, 'pair')}: {why}" for number, why in own.not_given[:_SHOWN]]
        lines += _more(own.not_given)
        for count, (node, tensor, remark) in own.reasons[:_SHOWN]:
            others = f" and {counted(count - 1, 'other pair')}" if count > 1 else ""
            lines.append(f"  failed      {node} {tensor}{others}: {remark}")
        lines += _more(own.reasons)
        lines += [f"  hint        {own.hint}"] if own.hint else []
    return lines


def _finding_lines(title: str, finding: Finding | None) -> list[str]:
    if finding is None:
        return []
    where = finding.coordinates.describe()
    lines = [f"{title}: {where}, {finding.module or finding.target}"]
    lines.append(f"  golden      {finding.golden}")
    lines.append(f"  target      {finding.target}")
    if finding.on_rank is not None:
        lines.append(f"  rank        {_rank(finding)}")
    if finding.node_class is not None:
        lines.append(f"  class       {finding.node_class}")
    lines += [f"  because     {text_of(reason)}" for reason in finding.reasons]
    numbers = _metrics({name: value for name, value in finding.metrics.items() if value is not None})
    if numbers:
        lines.append(f"  {finding.tensor or 'tensor':<11} {numbers}")
    return lines


def _rank(finding: Finding) -> str:
    return f"{finding.on_rank}{' of the golden dump' if finding.golden_ranks is not None else ''}"


def _metrics(values: dict[str, float | int]) -> str:
    first = {
        name: name for name in ("relative_l2", "cosine_similarity", "kl_divergence", "max_absolute_error")
    }
    first["error_bound"] = "relative_l2 at least"
    return ", ".join(f"{said} {values[name]:.3g}" for name, said in first.items() if name in values)


def _other_lines(findings: Findings) -> list[str]:
    lines = [text_of(findings.rank_finding)] if findings.rank_finding else []
    lines += [
        f"input differs: {difference.coordinates.describe()}: {text_of(difference.reason)}"
        for difference in findings.input_differs[:_SHOWN]
    ]
    lines += _more(findings.input_differs)
    for suspect in findings.suspects:
        reason = text_of(suspect.reasons[0]) if suspect.reasons else ""
        known = [str(suspect.node_class)] if suspect.node_class is not None else []
        known += [f"rank {_rank(suspect)}"] if suspect.on_rank is not None else []
        said = f" ({', '.join(known)})" if known else ""
        lines.append(f"suspect: {suspect.module or suspect.target}{said}: {reason}")
    for overflow in findings.overflow[:_SHOWN]:
        lines.append(f"overflow ({overflow.level}): {overflow.node}: {text_of(overflow.reason)}")
    return lines + _more(findings.overflow)


def _more(of: Sequence[object]) -> list[str]:
    return [f"  ... and {len(of) - _SHOWN} more"] if len(of) > _SHOWN else []


def _dump_line(side: str, dump: DumpSummary) -> str:
    slices = counted(dump.slices, "slice")
    said = [dump.format, slices if dump.is_whole else f"{dump.compared} of {slices} compared"]
    if dump.nodes:  # what no slice was read of is not known to be empty
        said += [counted(dump.nodes, "node"), counted(dump.tensors, "tensor")]
    return f"{side:<13} {dump.path}: {', '.join(said)}"


def _count_lines(counts: Counts) -> list[str]:
    golden = _left_over("golden", counts.unmatched_golden_nodes, counts.unmatched_golden_tensors)
    target = _left_over("target", counts.unmatched_target_nodes, counts.unmatched_target_tensors)
    verdicts = (
        f"{counts.passed} pass, {counts.warning} warning, {counts.error} error, "
        f"{counts.incomparable} incomparable"
    )
    return [f"pairs         {counts.pairs}: {verdicts}", f"unmatched     {golden}; {target}"]


def _left_over(side: str, nodes: int, tensors: int) -> str:
    return f"{side} {counted(nodes, 'node')}, {counted(tensors, 'tensor')}"


def _problem_lines(problems: Sequence[Problem], side: str) -> list[str]:
    lines = [
        f"problem       {side}: {problem.file}: {text_of(problem.reason)}" for problem in problems[:_SHOWN]
    ]
    return lines + _more(problems)


def inspection_object(found: Inspection) -> dict[str, Any]:
    """Return the object that `firstdrift inspect --json` prints."""
    return {
        "path": str(found.dump.path),
        "format": found.dump.format,
        "evidence": list(map(message_object, found.dump.evidence)),
        "attributes": dict(found.dump.attributes),
        "problems": _problem_objects(found.dump.problems),
        "slices": [_slice_object(one) for one in found.slices],
        "unknown_names": [
            {"name": one.name, "kind": "operator" if one.is_operator else "module", "count": one.count}
            for one in found.unknown
        ],
        "damaged_slices": [
            coordinates_object(coordinates) | _problem_object(problem)
            for coordinates, problem in found.damaged
        ],
    }


def _slice_object(one: SliceInspection) -> dict[str, Any]:
    return coordinates_object(one.coordinates) | {
        "nodes": one.modules + one.operators,
        "modules": one.modules,
        "operators": one.operators,
        "tensors": one.tensors,
        "with_data": one.with_data,
        "with_statistics": one.with_statistics,
        "with_digest": one.with_digest,
        "unreadable": one.unreadable,
        "order_origin": message_object(one.order_origin.message),
        "problems": _problem_objects(one.problems),
    }


def _problem_objects(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    return list(map(_problem_object, problems))


def _problem_object(problem: Problem) -> dict[str, Any]:
    return {"file": problem.file, "reason": message_object(problem.reason)}


def inspection_text(found: Inspection) -> str:
    """Lay an inspection out for a terminal."""
    dump = found.dump
    lines = [f"{dump.path}: {dump.format}"]
    lines += [f"  because     {text_of(clause)}" for clause in dump.evidence]
    lines += [f"  {name:<11} {value}" for name, value in dump.attributes.items()]
    for one in found.slices:
        there = [(one.modules, "module"), (one.operators, "operator"), (one.tensors, "tensor")]
        lines.append(
            f"{one.coordinates.describe()}: {', '.join(counted(*what) for what in there)} "
            f"({one.with_data} with data, {one.with_statistics} with statistics, "
            f"{one.with_digest} with digests, {one.unreadable} unreadable)"
        )
        lines += _problem_lines(one.problems, "  here")
    lines += [
        f"{at.describe()}: damaged: {problem.file}: {text_of(problem.reason)}"
        for at, problem in found.damaged
    ]
    lines += [text_of(message) for message in unknown_messages(found.unknown)]
    origins = sorted({text_of(one.order_origin.message) for one in found.slices})
    lines += [f"execution order: {origin}" for origin in origins]
    return _as_lines(lines + _problem_lines(dump.problems, "dump"))
