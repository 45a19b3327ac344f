"""What the library and the terminal compare with: results that stay in memory, dumps that are read once."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.comparison.clock import Clock
from firstdrift.comparison.outlines import outline_of
from firstdrift.comparison.report import DumpSummary, Options, SliceOutline, SliceResult
from firstdrift.comparison.session import Planned
from firstdrift.comparison.shown import shown
from firstdrift.comparison.slice_results import SliceResults
from firstdrift.comparison.stages import plan_slice
from firstdrift.comparison.user_hooks import Additions
from firstdrift.dumps.growth import settled
from firstdrift.errors import DumpUnreadableError
from firstdrift.groups import not_in
from firstdrift.matching.plan import Messages, SlicePlan, TensorPair
from firstdrift.metrics.measurement import Measurement
from firstdrift.model.slice import RECORDED_ORDER, Coordinates, Dump, Problem, Slice, SliceListing
from firstdrift.parallel.slices import read_merged, read_slice
from firstdrift.remote.addresses import name_of
from firstdrift.verdict.baseline import QUIET, Noise
from firstdrift.verdict.judgement import Finding, SliceJudgement
from firstdrift.verdict.series import with_bad_output
from firstdrift.wording.message import Message


class KeptResults:
    """The part of a storage (`firstdrift.comparison.session.Storage`) that keeps results in memory.

    Attributes:
        results: what was found of each pair of slices, by position.
    """

    def __init__(self) -> None:
        """Begin without results."""
        self.results: dict[int, SliceResult] = {}

    def keep(self, position: int, result: SliceResult, clock: Clock) -> None:
        """Keep what was found of a pair."""
        del clock
        self.results[position] = result

    def settle(self, position: int, bad: Finding) -> None:
        """Let the logits of a pair be bad."""
        if (result := self.results.get(position)) is not None:
            settled = with_bad_output(result.judgement, bad, result.rows)
            self.results[position] = replace(result, judgement=settled)


class InMemory(ABC):
    """A storage (`firstdrift.comparison.session.Storage`) that reads slices, and collects the results.

    Attributes:
        outlines: what is said of each pair of slices without rows and pairs, by position.
    """

    def __init__(
        self,
        options: Options,
        additions: Additions,
        noise: Mapping[Coordinates, Noise],
        *,
        details: bool = True,
    ) -> None:
        """Begin without results, of which rows and pairs are kept if `details` are asked for."""
        self.outlines: dict[int, SliceOutline] = {}
        self._results = SliceResults(kept=details)
        self._options, self._additions, self._noise = options, additions, noise

    @abstractmethod
    def read(self, position: int) -> tuple[Slice, Slice] | None:
        """Read a pair of slices; None if one is damaged."""

    @abstractmethod
    def measure(self, position: int, plan: SlicePlan) -> Sequence[Measurement]:
        """Measure the pairs of a plan."""

    def kept(self, position: int) -> SliceJudgement | None:
        """Return what was said of a pair before: nothing."""
        del position
        return None

    def planned(self, position: int, clock: Clock) -> Planned | None:
        """Read and match a pair of slices."""
        with clock.measure("index"):
            slices = self.read(position)
        if slices is None:
            return None
        with clock.measure("match"):
            planned = plan_slice(*slices, self._options)
            return replace(planned, plan=self._additions.prepare(planned.plan))

    def measured(self, position: int, plan: SlicePlan) -> Sequence[Measurement]:
        """Measure the pairs of a plan, with the algorithms of the user's."""
        return self._additions.measure(plan, self.measure(position, plan))

    def noise(self, golden: Coordinates) -> Noise:
        """Return what a healthy run shows of a golden slice."""
        return self._noise.get(golden, QUIET)

    def shown(self, position: int, pair: TensorPair, measured: Measurement) -> Messages:
        """Look at a pair of tensors from near."""
        del position
        return shown(pair, measured)

    def keep(self, position: int, result: SliceResult, clock: Clock) -> None:
        """Keep what was found of a pair."""
        del clock
        self._results.add(position, result)
        self.outlines[position] = outline_of(result)

    def settle(self, position: int, bad: Finding) -> None:
        """Let the logits of a pair be bad."""
        self._results.settle(position, bad)
        outline = self.outlines[position]
        self.outlines[position] = replace(outline, judgement=with_bad_output(outline.judgement, bad))

    def slices(self) -> Sequence[SliceResult]:
        """Return what was found, in execution order."""
        return self._results.whole()

    def outlined(self) -> tuple[SliceOutline, ...]:
        """Return what is said of each without rows and pairs, in execution order."""
        return tuple(self.outlines[position] for position in sorted(self.outlines))


class Contents(Struct, frozen=True):
    """What a slice of a dump holds."""

    listing: SliceListing
    nodes: int
    tensors: int
    problems: tuple[Problem, ...]
    order_origin: Message


class DumpReader:
    """Reads the slices of a dump and counts what there is in them.

    Attributes:
        contents: what was read, in order.
    """

    def __init__(self, dump: Dump) -> None:
        """Begin with no slice read."""
        self.dump = dump
        self.errors: list[DumpUnreadableError] = []
        self.contents: list[Contents] = []
        self._damages: list[Problem] = []
        self._looked_at: dict[SliceListing, Slice] = {}

    def settle(self) -> None:
        """Set aside the slices that are still being written."""
        self.dump = settled(self.dump, lambda _, listing: self.look_at(listing))

    def look_at(self, listing: SliceListing) -> Slice:
        """Return a slice before it is known whether it is compared, and keep it until then.

        Raises:
            DumpUnreadableError: it is damaged.
        """
        found = self._looked_at[listing] = read_slice(self.dump, listing)
        return found

    def unread(self, listing: SliceListing) -> list[SliceListing]:
        """Return what has not been looked at of a slice: itself, or the parts that it is merged from."""
        return not_in(listing.parts or (listing,), self._looked_at)

    def keep(self, listing: SliceListing, found: Slice) -> None:
        """Keep a slice that was read elsewhere until it is read here."""
        self._looked_at[listing] = found

    def forget_but(self, listings: Iterable[SliceListing]) -> None:
        """Keep what was looked at only of slices that are compared, merged or not."""
        compared = {part for listing in listings for part in (listing.parts or (listing,))}
        self._looked_at = {key: found for key, found in self._looked_at.items() if key in compared}

    def read(self, listing: SliceListing) -> Slice | None:
        """Return a slice; None if it is damaged, which spoils no other."""
        try:
            read = read_merged(listing, self._part)
        except DumpUnreadableError as error:
            self.errors.append(error)
            self._damages.append(Problem(name_of(error.path or listing.directory), error.message))
            return None
        tensors = sum(len(node.tensors) for node in read.nodes)
        origin = read.order_origin.message
        self.contents.append(Contents(listing, len(read.nodes), tensors, read.problems, origin))
        return read

    def _part(self, listing: SliceListing) -> Slice:
        return self._looked_at.pop(listing, None) or read_slice(self.dump, listing)

    def summary(self) -> DumpSummary:
        """Sum up what was read."""
        problems = chain(self.dump.problems, *(one.problems for one in self.contents), self._damages)
        read = {part for one in self.contents for part in (one.listing.parts or (one.listing,))}
        return DumpSummary(
            path=name_of(self.dump.path),
            format=self.dump.format,
            slices=len(self.dump.slices),
            nodes=sum(one.nodes for one in self.contents),
            tensors=sum(one.tensors for one in self.contents),
            problems=tuple(dict.fromkeys(problems)),  # slices may share a file
            order_origin=self.contents[-1].order_origin if self.contents else RECORDED_ORDER.message,
            compared=len(read),
            unfinished=self.dump.unfinished,
        )
