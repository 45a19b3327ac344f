"""What to look at first, as the advisor.txt that earlier versions of msprobe wrote.

    Line: 491
    Suspect Nodes: Module.model.layers.2.mlp.down_proj.Linear.forward.0.output.0
    Expert Advice: ...

The line is that of the table that `--csv` writes. The node is the first bad one, not the first bad row.
"""

from pathlib import Path
from typing import Final

from firstdrift.comparison.report import Report
from firstdrift.comparison.table import Line, PairLine, lines_of
from firstdrift.paths import encodable
from firstdrift.verdict.judgement import Finding, NodeClass
from firstdrift.wording.message import Message
from firstdrift.wording.text import text_of

_BY_CLASS: Final = {
    NodeClass.WEIGHTS_DIFFER: "weights",
    NodeClass.NON_FINITE: "non_finite",
    NodeClass.STRUCTURE_DIFFERS: "structure",
}
_FIRST_ROW: Final = 2
"""Line of the first row of a table: its columns are named above."""


def write_advice(report: Report, file: Path) -> None:
    """Write the advice for a report.

    Raises:
        OSError: it cannot be written.
    """
    file.write_text(encodable(advice_text(report)), "utf-8", newline="\n")


def advice_text(report: Report) -> str:
    """Say in three lines where to look first and what to check; where nothing is bad, what was found."""
    suspect = report.findings.first_bad_node or report.findings.first_bad_token
    if suspect is None:
        return f"Expert Advice: {text_of(report.findings.summary)}\n"
    named = ".".join(filter(None, (suspect.target or suspect.golden, suspect.tensor)))
    line = next((at for at, one in enumerate(lines_of(report), _FIRST_ROW) if _is_of(one, suspect)), "-")
    advice = text_of(Message.of(f"advice.{_kind(suspect)}"))
    return f"Line: {line}\nSuspect Nodes: {_on_one_line(named)}\nExpert Advice: {advice}\n"


def _on_one_line(name: str) -> str:
    return "".join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in name)


def _is_of(line: Line, suspect: Finding) -> bool:
    if not isinstance(line, PairLine):
        return False
    pair = line.pair
    there = (line.coordinates, pair.golden_node, pair.target_node)
    is_there = there == (suspect.coordinates, suspect.golden, suspect.target)
    return is_there and suspect.tensor in (None, pair.target.label)


def _kind(suspect: Finding) -> str:
    if suspect.node_class in _BY_CLASS:
        return _BY_CLASS[suspect.node_class]
    role = (suspect.tensor or "output").partition(".")[0]
    if role == "parameter":
        return "weights"
    is_backward = ".backward" in suspect.target
    return f"{'backward' if is_backward else 'forward'}_{'input' if role == 'input' else 'output'}"
