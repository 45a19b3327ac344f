"""What a crew elsewhere, such as a cluster, does of a comparison, and how it comes into the catalogue."""

from collections.abc import Sequence
from pathlib import Path

from firstdrift.catalogue.comparisons.records import Comparison
from firstdrift.comparison.from_dumps import Handed
from firstdrift.comparison.side_by_side import Work
from firstdrift.comparison.slice_results import restored
from firstdrift.matching.plan import SlicePairing
from firstdrift.processes.packed import unpack
from firstdrift_worker.storage import CatalogueStorage


def work_of_crew(
    comparison: Comparison, storage: CatalogueStorage, pairing: SlicePairing, roots: Sequence[Path] | None
) -> Work:
    """Say what there is to do; `roots` are the directories outside of which nothing is read."""
    places = [golden.coordinates for golden, _ in pairing.pairs]
    healthy = comparison.options.baseline is not None
    return Work(
        paths=(comparison.golden_path, comparison.target_path),
        options=comparison.options,
        pairs=pairing.pairs,
        noise={place: storage.noise(place) for place in places} if healthy else {},
        details=True,
        slices=True,
        roots=None if roots is None else tuple(roots),
    )


class FromCrew:
    """Puts into the catalogue what a crew found (a `firstdrift.comparison.side_by_side.Taker`)."""

    def __init__(self, storage: CatalogueStorage) -> None:
        """Prepare."""
        self._storage = storage

    def take(self, position: int, kept: bytes) -> None:
        """Keep what was found of a pair of slices."""
        handed: Handed = unpack(Handed, kept)
        if handed.result is None or handed.slices is None:
            raise ValueError("rows, pairs and slices were asked for")
        self._storage.add(position, restored(handed.result), handed.slices)
