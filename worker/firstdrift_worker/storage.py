"""The catalogue as the storage of a comparison: what is done is kept at once, and not done again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from firstdrift.catalogue.comparisons import results
from firstdrift.catalogue.comparisons.baselines import load_noise
from firstdrift.catalogue.comparisons.packed_slices import FromElsewhere, PackedSlice, pack_slice
from firstdrift.catalogue.comparisons.records import Comparison
from firstdrift.catalogue.comparisons.results import SavedSlice, SlicePlace
from firstdrift.catalogue.dumps import records as dumps
from firstdrift.catalogue.engine import reading
from firstdrift.catalogue.matches.match_preview import unchanged_slice
from firstdrift.comparison.clock import Clock
from firstdrift.comparison.report import SliceResult
from firstdrift.comparison.session import Planned, without_details
from firstdrift.comparison.side_by_side import Judged
from firstdrift.comparison.stages import plan_slice
from firstdrift.groups import not_in
from firstdrift.matching.plan import Messages, SlicePairing, SlicePlan, TensorPair
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.model.slice import Coordinates, Slice
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

    @property
    def compared(self) -> results.Compared:
        """What is compared, as the catalogue knows it."""
        dumps = self.golden.id, self.target.id
        return results.Compared(dumps, (self.golden.files, self.target.files), self.slice_ids())


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
        self._files = {
            one.id: one.files for side in (pair.golden, pair.target) for one in side.slices.values()
        }
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
        measured, last = self._measured_before(ids, plan, keys)
        new = not_in(range(len(plan.pairs)), measured)
        bytes_here = sum(plan.pairs[index].data_bytes for index in new)
        bytes_to_come = bytes_here * (len(self.slice_ids) - position)
        left = len(new)
        self._progress(position, 0, Message.of("stage.measuring", left=left))
        for chunk, measurements in self._measurer.measure(plan, new, bytes_to_come, self._work.check):
            of_chunk = dict(zip(chunk.indexes, measurements, strict=True))
            with self._work.writing() as session:
                by_key = {keys[index]: measurement for index, measurement in of_chunk.items()}
                last = results.add_measurements(session, *ids, by_key, last)
            measured |= of_chunk
            left -= len(of_chunk)
            self._progress(position, 1 - left / len(new), Message.of("stage.measuring", left=left))
            if self._tell is not None:
                self._tell(position, len(new) - left, len(new))
        return [measured[index] for index in range(len(plan.pairs))]

    def _measured_before(
        self, ids: tuple[int, int], plan: SlicePlan, keys: Sequence[bytes]
    ) -> tuple[dict[int, Measurement], int]:
        """Return the measurements that are there already, by position of the pair, and their last block."""
        with reading(self._work.engine) as session:
            known = results.load_measurements(session, *ids)
            last = results.last_block(session, *ids)
        found = {
            index: known[key]
            for index, (key, pair) in enumerate(zip(keys, plan.pairs, strict=True))
            if key in known and _is_still_good(known[key], pair)
        }
        return found, last

    def noise(self, golden: Coordinates) -> Noise:
        """Read what a healthy run shows of a golden slice."""
        with reading(self._work.engine) as session:
            return load_noise(session, self._baseline, golden)

    def shown(self, position: int, pair: TensorPair, measured: Measurement) -> Messages:
        """Look at a pair of tensors from near, unless another comparison of the two slices did."""
        with reading(self._work.engine) as session:
            origins = results.origins_known(session, *self.slice_ids[position])
        place = pair.golden_node, pair.target_node, pair.target.label
        before = (
            one.shown
            for one in origins
            if one.entered is None and (one.golden, one.target, one.tensor) == place
        )
        return next(filter(None, before), ()) or self._measurer.look(pair, measured, self._work.check)

    def keep(self, position: int, result: SliceResult, clock: Clock) -> None:
        """Write what was found of a pair that was planned last."""
        if self._slices is None:
            return
        with clock.measure("store"):
            packed = pack_slice(result, self._slices)
        self._slices = None
        self._save(position, without_details(result.judgement), packed, clock)

    def add(self, answer: Judged) -> None:
        """Keep what was read, measured and judged elsewhere."""
        position, clock = answer.position, Clock()
        clock.add(answer.seconds)
        found: FromElsewhere = unpack(FromElsewhere, answer.kept)
        ids = self.slice_ids[position]
        with clock.measure("store"):
            for slice_id, read in zip(ids, found.slices, strict=True):
                if read is not None:
                    dumps.add_packed_nodes(self._work.writing, slice_id, read, self._files[slice_id])
            with self._work.writing() as session:
                results.add_packed_measurements(session, *ids, found.measured)
        self._save(position, answer.said, found.packed, clock)

    def _save(self, position: int, said: SliceJudgement, packed: PackedSlice, clock: Clock) -> None:
        with clock.measure("store"):
            place = self._place(position)
            saved = results.save_slice(self._work.writing, place, said, packed, clock.seconds)
        self.saved[position] = replace(saved, seconds=clock.seconds)

    def unknown(self) -> list[tuple[bool, bool]]:
        """Say of each pair which of the two slices the catalogue does not know yet."""
        of_dumps = (self._golden.slices.values(), self._target.slices.values())
        new = {one.id for slices in of_dumps for one in slices if one.nodes is None}
        return [(golden in new, target in new) for golden, target in self.slice_ids]

    def divide(self, tell: Callable[[int, int, int], None]) -> None:
        """Know that this is a lane, which tells another process how far it is."""
        self._tell = tell

    def hand_over(self, position: int) -> bytes:
        """Give what the catalogue does not tell of a pair that was kept in a lane."""
        return pack(self.saved.pop(position))

    def take(self, answer: Judged) -> None:
        """Know what a lane kept of a pair."""
        self.saved[answer.position] = unpack(SavedSlice, answer.kept)

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


def _is_still_good(measurement: Measurement, pair: TensorPair) -> bool:
    """Tell whether a measurement is to be kept: that the data could not be read may be so no longer."""
    return measurement.kind is not MeasurementKind.INCOMPARABLE or pair.incomparable is not None
