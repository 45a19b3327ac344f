"""The catalogue as the storage of a comparison: what is done is kept at once, and not done again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from firstdrift.catalogue.comparisons import results
from firstdrift.catalogue.comparisons.baselines import load_noise
from firstdrift.catalogue.comparisons.records import Comparison
from firstdrift.catalogue.comparisons.results import SavedSlice, SlicePlace
from firstdrift.catalogue.dumps import records as dumps
from firstdrift.catalogue.engine import reading
from firstdrift.catalogue.matches.match_preview import unchanged_slice
from firstdrift.comparison.clock import Clock
from firstdrift.comparison.report import SliceResult
from firstdrift.comparison.session import Planned, without_details
from firstdrift.comparison.stages import count_unreadable, plan_slice
from firstdrift.groups import not_in
from firstdrift.matching.plan import Messages, SlicePairing, SlicePlan, TensorPair
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.model.slice import Coordinates, Slice
from firstdrift.model.tensor import TensorRecord
from firstdrift.processes.packed import pack, unpack
from firstdrift.verdict.baseline import Noise
from firstdrift.verdict.judgement import Finding, SliceJudgement
from firstdrift.verdict.series import with_bad_output
from firstdrift.wording.message import Message
from firstdrift_worker.indexing import Indexed, read_indexed
from firstdrift_worker.measuring import Measurer
from firstdrift_worker.work import Work


@dataclass(frozen=True, slots=True)
class DumpPair:
    """Two dumps, and which of their slices are compared."""

    golden: Indexed
    target: Indexed
    pairing: SlicePairing

    def slice_ids(self) -> list[tuple[int, int]]:
        """Give the ids of the golden and the target slice of each pair."""
        return [
            (self.golden.slices[golden].id, self.target.slices[target].id)
            for golden, target in self.pairing.pairs
        ]


class CatalogueStorage:
    """The storage (`firstdrift.comparison.session.Storage`) of a job.

    Attributes:
        saved: what was kept of each pair of slices, by position.
        slice_ids: ids of the golden and the target slice of each pair.
    """

    def __init__(
        self,
        work: Work,
        comparison: Comparison,
        pair: DumpPair,
        measurer: Measurer,
        baseline: Mapping[Coordinates, int],
    ) -> None:
        """Prepare; `baseline` says in which slice pair of the healthy run the noise of a golden slice is."""
        self.saved: dict[int, SavedSlice] = {}
        self._work, self._comparison, self._measurer, self._baseline = work, comparison, measurer, baseline
        self._golden, self._target = pair.golden, pair.target
        self.slice_ids = pair.slice_ids()
        self._slices: tuple[Slice, Slice] | None = None
        self._tell: Callable[[int, int, int], None] | None = None

    def kept(self, position: int) -> SliceJudgement | None:
        """Return what was kept of a pair for this revision, or found of it before edits were made."""
        place = self._place(position)
        with reading(self._work.engine) as session:
            saved = results.saved_slice(session, place)
        saved = saved or self._copied(place)
        if saved is None:
            return None
        self.saved[position] = saved
        return saved.judgement

    def _copied(self, place: SlicePlace) -> SavedSlice | None:
        """Take over what was found of a pair before edits were made, if they change nothing of it."""
        if not self._comparison.options.matching.edits:
            return None
        with reading(self._work.engine) as session:
            found = unchanged_slice(session, place, self._comparison.options)
        return None if found is None else results.copy_slice(self._work.writing, place, *found)

    def planned(self, position: int, clock: Clock) -> Planned | None:
        """Read and match a pair of slices."""
        self._progress(position, 0, Message.of("stage.reading"))
        golden_id, target_id = self.slice_ids[position]
        with clock.measure("index"):
            golden = read_indexed(self._work, self._golden, golden_id)
            target = read_indexed(self._work, self._target, target_id)
        if golden is None or target is None:
            return None
        self._slices = golden, target
        self._progress(position, 0, Message.of("stage.matching"))
        with clock.measure("match"):
            return plan_slice(golden, target, self._comparison.options)

    def measured(self, position: int, plan: SlicePlan) -> list[Measurement]:
        """Measure what has not been measured before, and keep it as it comes."""
        ids = self.slice_ids[position]
        keys = results.pair_keys(plan.pairs)
        measured = self._measured_before(ids, plan, keys)
        new = not_in(range(len(plan.pairs)), measured)
        bytes_here = sum(plan.pairs[index].data_bytes for index in new)
        bytes_to_come = bytes_here * (len(self.slice_ids) - position)
        left = len(new)
        self._progress(position, 0, Message.of("stage.measuring", left=left))
        for chunk, measurements in self._measurer.measure(plan, new, bytes_to_come, self._work.check):
            of_chunk = dict(zip(chunk.indexes, measurements, strict=True))
            with self._work.writing() as session:
                by_key = {keys[index]: measurement for index, measurement in of_chunk.items()}
                results.add_measurements(session, *ids, by_key)
            measured |= of_chunk
            left -= len(of_chunk)
            self._progress(position, 1 - left / len(new), Message.of("stage.measuring", left=left))
            if self._tell is not None:
                self._tell(position, len(new) - left, len(new))
        return [measured[index] for index in range(len(plan.pairs))]

    def _measured_before(
        self, ids: tuple[int, int], plan: SlicePlan, keys: Sequence[bytes]
    ) -> dict[int, Measurement]:
        """Return the measurements that are there already, by position of the pair."""
        with reading(self._work.engine) as session:
            known = results.load_measurements(session, *ids)
        return {
            index: known[key]
            for index, (key, pair) in enumerate(zip(keys, plan.pairs, strict=True))
            if key in known and _is_still_good(known[key], pair)
        }

    def noise(self, golden: Coordinates) -> Noise:
        """Read what a healthy run shows of a golden slice."""
        with reading(self._work.engine) as session:
            return load_noise(session, self._baseline, golden)

    def shown(self, position: int, pair: TensorPair, measured: Measurement) -> Messages:
        """Look at a pair of tensors from near, unless another comparison of the two slices did."""
        with reading(self._work.engine) as session:
            origins = results.origins_known(session, *self.slice_ids[position])
        place = pair.golden_node, pair.target_node, pair.target.label
        before = (one.shown for one in origins if (one.golden, one.target, one.tensor) == place)
        return next(filter(None, before), ()) or self._measurer.look(pair, measured, self._work.check)

    def keep(self, position: int, result: SliceResult, clock: Clock) -> None:
        """Write what was found of a pair that was planned last."""
        if self._slices is None:
            return
        with clock.measure("store"):
            place = self._place(position)
            results.save_slice(self._work.writing, place, result, self._slices, clock.seconds)
        self._slices = None
        said = without_details(result.judgement)
        self.saved[position] = SavedSlice(said, count_unreadable(result), clock.seconds)

    def add(self, position: int, result: SliceResult, slices: tuple[Slice, Slice]) -> None:
        """Keep what was read, measured and judged elsewhere."""
        ids = self.slice_ids[position]
        for slice_id, read in zip(ids, slices, strict=True):
            with reading(self._work.engine) as session:
                known = dumps.get_slice(session, slice_id)
            if known.nodes is None:
                dumps.add_nodes(self._work.writing, slice_id, read)
        with reading(self._work.engine) as session:
            before = results.load_measurements(session, *ids)
        measured = zip(results.pair_keys(result.plan.pairs), result.measurements, strict=True)
        if new := {key: one for key, one in measured if before.get(key) != one}:
            with self._work.writing() as session:
                results.add_measurements(session, *ids, new)
        self._slices = slices
        self.keep(position, replace(result, plan=_with_records_of(result.plan, slices)), Clock())

    def divide(self, tell: Callable[[int, int, int], None]) -> None:
        """Know that this is a lane, which tells another process how far it is."""
        self._tell = tell

    def hand_over(self, position: int) -> bytes:
        """Give what the catalogue does not tell of a pair that was kept in a lane."""
        return pack(self.saved.pop(position))

    def take(self, position: int, kept: bytes) -> None:
        """Know what a lane kept of a pair."""
        self.saved[position] = unpack(SavedSlice, kept)

    def settle(self, position: int, bad: Finding) -> None:
        """Let the logits of a pair be bad."""
        saved = self.saved[position]
        settled = with_bad_output(saved.judgement, bad)
        with self._work.writing() as session:
            results.save_bad_output(
                session, self._comparison.id, self._comparison.revision, position, settled
            )
        self.saved[position] = replace(saved, judgement=settled)

    def _place(self, position: int) -> SlicePlace:
        return SlicePlace(self._comparison.id, self._comparison.revision, position, *self.slice_ids[position])

    def _progress(self, position: int, share: float, stage: Message) -> None:
        self._work.progress(position, len(self.slice_ids), share, stage)


def _with_records_of(plan: SlicePlan, slices: tuple[Slice, Slice]) -> SlicePlan:
    """Let the pairs of a plan that came from elsewhere hold the very tensors of its slices."""
    own = [{(node.name, one.label): one for node in read.nodes for one in node.tensors} for read in slices]

    def of(side: int, node: str, record: TensorRecord) -> TensorRecord:
        found = own[side].get((node, record.label))
        return found if found == record else record

    pairs = (
        replace(
            pair, golden=of(0, pair.golden_node, pair.golden), target=of(1, pair.target_node, pair.target)
        )
        for pair in plan.pairs
    )
    return replace(plan, pairs=tuple(pairs))


def _is_still_good(measurement: Measurement, pair: TensorPair) -> bool:
    """Tell whether a measurement is to be kept: that the data could not be read may be so no longer."""
    return measurement.kind is not MeasurementKind.INCOMPARABLE or pair.incomparable is not None
