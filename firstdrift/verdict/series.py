"""Slices that are judged once more when all are known: bad outputs that no node of a slice shows.

judge_after, slice by slice ─▶ bad_outputs, over all of them ─▶ with_bad_output ─▶ conclude

So what is said of a slice, its counts and its rows agrees with what is said first.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from firstdrift.verdict.judgement import Counts, Finding, PairJudgement, SliceJudgement, Verdict
from firstdrift.verdict.row_verdicts import with_roll_ups
from firstdrift.verdict.tree import TreeRow

_COUNT_OF = {Verdict.PASS: "passed"}


def with_bad_output(judged: SliceJudgement, finding: Finding, rows: Sequence[TreeRow] = ()) -> SliceJudgement:
    """Let the logits of a slice be an error: in their pair, their row, what lies above it and the counts."""
    logits, index = judged.logits, judged.logits_pair
    if logits is None or index is None or logits.verdict is Verdict.ERROR:
        return judged
    settled = replace(
        judged,
        counts=_moved(judged.counts, logits.verdict),
        logits=replace(logits, verdict=Verdict.ERROR, reasons=finding.reasons),
    )
    if not judged.pairs:
        return settled
    pairs, said = list(judged.pairs), list(judged.rows)
    pairs[index] = PairJudgement(Verdict.ERROR, pairs[index].error, finding.reasons)
    said[logits.row] = replace(
        said[logits.row], verdict=Verdict.ERROR, reasons=finding.reasons, worst_pair=index
    )
    return replace(settled, pairs=tuple(pairs), rows=with_roll_ups(rows, said))


def _moved(counts: Counts, verdict: Verdict) -> Counts:
    """Count a pair as an error that had another verdict."""
    name = _COUNT_OF.get(verdict, verdict.value)
    return replace(counts, **{name: getattr(counts, name) - 1, "error": counts.error + 1})
