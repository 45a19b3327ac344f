"""A comparison of the catalogue, summed up for a report."""

from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.charts import layer_errors
from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.catalogue.comparisons.tree import bad_rows, count_bad_rows
from firstdrift.catalogue.sharing.notes import notes_of
from firstdrift.comparison.report import DumpSummary, all_notes
from firstdrift.exports.summary import WORST, Layer, SliceLine, Summary, WrittenNote, node_line
from firstdrift.verdict.findings import conclude
from firstdrift.verdict.judgement import Counts


def stored_summary(session: Session, comparison_id: int) -> Summary:
    """Sum up what there is of a comparison so far.

    Raises:
        NotInCatalogueError: there is no such comparison.
    """
    known = get_comparison(session, comparison_id)
    pairs = slice_pairs_of(session, comparison_id)
    numbers = {pair.position: number for number, pair in enumerate(pairs)}
    errors = layer_errors(session, comparison_id)
    of_layers = zip(errors.positions, errors.paths, errors.rows, errors.lasts, errors.errors, strict=True)
    remarks = all_notes(known.notes, [(pair.target, pair.notes) for pair in pairs])
    notes = (note for note in notes_of(session, comparison_id) if note.deleted_at is None)
    targets = {pair.id: pair.target for pair in pairs}
    return Summary(
        golden=known.golden or _unread(str(known.golden_path)),
        target=known.target or _unread(str(known.target_path)),
        rules=known.options.rules,
        findings=known.findings or conclude([pair.judgement for pair in pairs]),
        counts=known.counts or sum((pair.judgement.counts for pair in pairs), Counts()),
        slices=tuple(
            SliceLine(pair.target, pair.verdict, pair.judgement.logits_error, pair.judgement.logits_recorded)
            for pair in pairs
        ),
        layers=tuple(
            Layer(numbers[position], path, row, last, error)
            for position, path, row, last, error in of_layers
            if position in numbers
        ),
        worst=tuple(
            node_line(targets[slice_pair], row.tree, row.judgement)
            for slice_pair, row in bad_rows(session, comparison_id, WORST)
        ),
        bad=count_bad_rows(session, comparison_id),
        notes=remarks,
        unpaired=(
            tuple(left.describe() for left in known.unmatched_golden),
            tuple(left.describe() for left in known.unmatched_target),
        ),
        unreadable=known.unreadable or 0,
        seconds=None if known.seconds is None else known.seconds.get("total"),
        written=tuple(
            WrittenNote(note.coordinates, note.node, note.author, note.text, note.written_at)
            for note in notes
        ),
        compared_at=known.finished_at,
    )


def _unread(path: str) -> DumpSummary:
    return DumpSummary(path=path, format="", slices=0, nodes=0, tensors=0)
