"""The tables.

    dumps ──< slices ──< nodes ──< tensors, computed    what lies on disk, indexed once
                │
    comparisons ──< slice_pairs ──< rows, plans         results, replaced whole when judged again
                │        └───────< pairs ──> measurements
                ├──< jobs          workers              measured once per pair of indexed slices
                ├──< match_sets ──< match_set_versions ──> comparisons      with edits laid over
                └──< share_links, node_notes             what people are shown, and what they write

Measurements belong to two indexed slices, not to a comparison: whatever is compared again (under other
rules, with other matches) takes from there what has been measured before.
"""

from firstdrift.catalogue.tables.comparisons import (
    BAD,
    BELOW,
    ComparisonEntry,
    MeasurementEntry,
    PairEntry,
    PlanEntry,
    RowEntry,
    SlicePairEntry,
)
from firstdrift.catalogue.tables.dumps import (
    ComputedEntry,
    DumpEntry,
    NodeEntry,
    SliceEntry,
    TensorEntry,
    computed_of,
)
from firstdrift.catalogue.tables.entry import Entry, JobState
from firstdrift.catalogue.tables.jobs import JobEntry, WorkerEntry
from firstdrift.catalogue.tables.matches import MatchSetEntry, MatchSetVersionEntry
from firstdrift.catalogue.tables.sharing import NodeNoteEntry, ShareLinkEntry

__all__ = [
    "BAD",
    "BELOW",
    "ComparisonEntry",
    "ComputedEntry",
    "DumpEntry",
    "Entry",
    "JobEntry",
    "JobState",
    "MatchSetEntry",
    "MatchSetVersionEntry",
    "MeasurementEntry",
    "NodeEntry",
    "NodeNoteEntry",
    "PairEntry",
    "PlanEntry",
    "RowEntry",
    "ShareLinkEntry",
    "SliceEntry",
    "SlicePairEntry",
    "TensorEntry",
    "WorkerEntry",
    "computed_of",
]
