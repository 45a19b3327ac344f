"""A comparison of the catalogue, summed up for a report."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path

from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.charts import LayerErrors, layer_errors
from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import SlicePair, slice_pairs_of
from firstdrift.catalogue.comparisons.tree import bad_rows, count_bad_rows
from firstdrift.catalogue.lookup import record_of
from firstdrift.catalogue.sharing.notes import notes_of
from firstdrift.comparison.report import DumpSummary, all_notes
from firstdrift.exports.summary import (
    WORST,
    Layer,
    NodeLine,
    SliceLine,
    Summary,
    WrittenNote,
    node_line,
)
from firstdrift.model.slice import only_on_one_side
from firstdrift.verdict.findings import conclude
from firstdrift.verdict.judgement import Counts, Verdict
from firstdrift.verdict.limit import limit_of_nodes


def stored_summary(session: Session, comparison_id: int) -> Summary:
    """Sum up what there is of a comparison so far.

    Raises:
        NotInCatalogueError: there is no such comparison.
    """
    known = get_comparison(session, comparison_id)
    pairs = slice_pairs_of(session, comparison_id)
    judged = [pair.judgement for pair in pairs]
    limit = limit_of_nodes(judged)
    return Summary(
        golden=known.golden or _unread(known.golden_path),
        target=known.target or _unread(known.target_path),
        rules=known.options.rules,
        findings=known.findings or conclude(judged),
        counts=known.counts or sum(map(attrgetter("counts"), judged), Counts()),
        slices=tuple(map(_slice_line, pairs)),
        layers=tuple(_layers(layer_errors(session, comparison_id), pairs)),
        worst=tuple(_worst(session, comparison_id, pairs)),
        bad=count_bad_rows(session, comparison_id),
        notes=all_notes(known.notes, [(pair.target, pair.notes) for pair in pairs]),
        unpaired=only_on_one_side(known.unmatched_golden, known.unmatched_target),
        unreadable=known.unreadable or 0,
        seconds=(known.seconds or {}).get("total"),
        written=tuple(_written(session, comparison_id)),
        compared_at=known.finished_at,
        limit=limit,
    )


def _slice_line(pair: SlicePair) -> SliceLine:
    judged = pair.judgement
    return SliceLine(pair.target, pair.verdict, judged.logits_error, judged.logits_recorded)


def _layers(errors: LayerErrors, pairs: Sequence[SlicePair]) -> Iterator[Layer]:
    numbers = {pair.position: number for number, pair in enumerate(pairs)}
    layers = zip(errors.paths, errors.rows, errors.lasts, errors.verdicts, errors.errors, strict=True)
    for position, layer in zip(errors.positions, layers, strict=True):
        if position in numbers:
            path, row, last, verdict, error = layer
            yield Layer(numbers[position], path, row, last, Verdict(verdict), error)


def _worst(session: Session, comparison_id: int, pairs: Sequence[SlicePair]) -> Iterator[NodeLine]:
    targets = {pair.id: pair.target for pair in pairs}
    for slice_pair, row in bad_rows(session, comparison_id, WORST):
        yield node_line(targets[slice_pair], row.tree, row.judgement)


def _written(session: Session, comparison_id: int) -> Iterator[WrittenNote]:
    for note in notes_of(session, comparison_id):
        if note.deleted_at is None:
            yield record_of(WrittenNote, note)


def _unread(path: Path) -> DumpSummary:
    return DumpSummary(path=str(path), format="", slices=0, nodes=0, tensors=0)
