"""Shards of ranks whose files are not as they were recorded spoil their own tensor only."""

from pathlib import Path

import numpy as np
import pytest

from firstdrift.metrics.measure import measure_pair
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.metrics.ranks.merged import measure_shards
from firstdrift.model.tensor import DataLocation, Role, Sharding, Shards, TensorRecord

ROWS, WIDTH = 5, 8


@pytest.mark.parametrize("stored", [(ROWS, WIDTH), (ROWS, 4 * WIDTH), (WIDTH,)])
def test_files_of_other_shapes_than_recorded_are_compared_as_they_are(stored: tuple[int, ...]) -> None:
    whole, joined = DataLocation(Path("whole"), "npy"), DataLocation(Path("joined"), "shards", axis=1)
    values = np.random.default_rng(0).standard_normal((2, *stored)).astype(np.float32)
    arrays = {whole: values[0], joined: values[1]}
    parts = tuple(TensorRecord(Role.OUTPUT, "0", "float32", (ROWS, WIDTH)) for _ in range(2))
    shards = Shards((0, 1), parts, sharding=Sharding.CONCATENATED, axis=1)
    golden = TensorRecord(Role.OUTPUT, "0", "float32", (ROWS, 2 * WIDTH), location=whole)
    target = TensorRecord(Role.OUTPUT, "0", "float32", (ROWS, 2 * WIDTH), location=joined, shards=shards)
    measured = measure_shards(golden, target, measure_pair, arrays.__getitem__)
    assert measured.kind is MeasurementKind.DATA
    assert measured.errors is not None
    assert measured.errors.size == np.prod(stored)
    assert measured.by_rank is None
