"""What a crew elsewhere, such as a cluster, does of a comparison, and how it comes into the catalogue."""

from collections.abc import Sequence
from pathlib import Path

from firstdrift.catalogue.comparisons.records import Comparison
from firstdrift.comparison.side_by_side import Judged, Work
from firstdrift.matching.plan import SlicePairing
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
        unknown=tuple(storage.unknown()),
        roots=None if roots is None else tuple(roots),
    )


class FromCrew:
    """Puts into the catalogue what a crew found (a `firstdrift.comparison.side_by_side.Taker`)."""

    def __init__(self, storage: CatalogueStorage) -> None:
        """Prepare."""
        self._storage = storage

    def take(self, answer: Judged) -> None:
        """Keep what was found of a pair of slices."""
        self._storage.add(answer)
