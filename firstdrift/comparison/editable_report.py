"""The report as notebooks have it: nodes are matched by hand, and the pairs are a pandas frame."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from firstdrift.comparison.rematch import Effect, preview, rematch, suggest_for
from firstdrift.comparison.report import Report
from firstdrift.comparison.table import columns_of, pair_rows
from firstdrift.matching.manual.edits import Edit, match, unmatch
from firstdrift.matching.structure.suggestions import Suggestion

if TYPE_CHECKING:
    from pandas import DataFrame


class EditableReport(Report, frozen=True):
    """A report that can be changed: each change gives a new one."""

    def match(
        self, golden: str | Iterable[str], target: str | Iterable[str], *, descendants: bool = True
    ) -> Self:
        """Return the report with nodes matched by hand; several on one side were fused into one.

        The backward pass and the gradients follow, and with `descendants` what is inside is aligned. Only
        what is new is measured. This report stays as it is.

        Raises:
            DumpError: one of the dumps cannot be used any more.
            SettingsError: nodes of that name are in no slice, or they cannot be the same.
        """
        return rematch(self, [match(golden, target, descendants=descendants)])

    def unmatch(
        self,
        golden: str | Iterable[str] = (),
        target: str | Iterable[str] = (),
        *,
        descendants: bool = True,
    ) -> Self:
        """Return the report with the matches of nodes taken apart; this report stays as it is.

        Raises:
            DumpError: one of the dumps cannot be used any more.
            SettingsError: nodes of that name are in no slice, or are not matched.
        """
        return rematch(self, [unmatch(golden, target, descendants=descendants)])

    def preview(self, *edits: Edit) -> Effect:
        """Say what edits (`firstdrift.match`, `firstdrift.unmatch`) would change.

        Raises:
            DumpError: one of the dumps cannot be used any more.
            SettingsError: an edit can be applied to no slice.
        """
        return preview(self, edits)

    def suggest(
        self, *, golden: str | None = None, target: str | None = None, at: int = 0, most: int = 10
    ) -> tuple[Suggestion, ...]:
        """Rank the partners that a node of slice number `at` may have, the likeliest first.

        Raises:
            DumpError: one of the dumps cannot be used any more.
            SettingsError: not exactly one node is named, or there is no such node or slice.
        """
        return suggest_for(self, golden=golden, target=target, at=at, most=most)

    def frame(self) -> "DataFrame":
        """Return one row for each pair, unmatched node and unmatched tensor as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(pair_rows(self), columns=list(columns_of(self)))
