"""The tables.

    dumps ──< slices ──< node_blocks, computed          what lies on disk, indexed once
                │  └────< measurement_blocks
    comparisons ──< slice_pairs ──< row_blocks, pair_blocks, overviews, plans
                │                                        results, replaced whole when judged again
                ├──< jobs          workers              measured once per pair of indexed slices
                ├──< match_sets ──< match_set_versions ──> comparisons      with edits laid over
                └──< share_links, node_notes             what people are shown, and what they write
    members          audit                               who is let in, and who changed what

Nodes with their tensors, rows, pairs and measurements come by the million: some hundreds of them are packed
into one row of their table, a block.

Measurements belong to two indexed slices, not to a comparison: whatever is compared again (under other
rules, with other matches) takes from there what has been measured before.
"""

from firstdrift.catalogue.tables.comparisons import (
    BAD,
    ComparisonEntry,
    MeasurementBlockEntry,
    OverviewEntry,
    PairBlockEntry,
    PlanEntry,
    RowBlockEntry,
    SlicePairEntry,
)
from firstdrift.catalogue.tables.dumps import (
    ComputedEntry,
    DumpEntry,
    NodeBlockEntry,
    SliceEntry,
)
from firstdrift.catalogue.tables.entry import Entry, JobState
from firstdrift.catalogue.tables.jobs import JobEntry, WorkerEntry
from firstdrift.catalogue.tables.matches import MatchSetEntry, MatchSetVersionEntry
from firstdrift.catalogue.tables.people import AuditEntry, MemberEntry
from firstdrift.catalogue.tables.sharing import NodeNoteEntry, ShareLinkEntry

__all__ = [
    "BAD",
    "AuditEntry",
    "ComparisonEntry",
    "ComputedEntry",
    "DumpEntry",
    "Entry",
    "JobEntry",
    "JobState",
    "MatchSetEntry",
    "MatchSetVersionEntry",
    "MeasurementBlockEntry",
    "MemberEntry",
    "NodeBlockEntry",
    "NodeNoteEntry",
    "OverviewEntry",
    "PairBlockEntry",
    "PlanEntry",
    "RowBlockEntry",
    "ShareLinkEntry",
    "SliceEntry",
    "SlicePairEntry",
    "WorkerEntry",
]
