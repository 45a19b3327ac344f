"""What several workers measure of the same slices at once is kept once."""

import math
import threading
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from firstdrift.catalogue.comparisons.measurements import (
    KEY_BYTES,
    add_measurements,
    add_packed_measurements,
    load_measurements,
    pack_measurements,
    places_of,
)
from firstdrift.catalogue.dumps.records import add_dump, slices_of_dump
from firstdrift.catalogue.engine import reading, writing
from firstdrift.metrics.measurement import Measurement, MeasurementKind
from firstdrift.model.slice import Coordinates, Dump, SliceListing
from firstdrift.wording.message import Message

NUMBER = 300
"""More than fit into one block."""


@pytest.fixture
def slices(engine: Engine) -> tuple[int, int]:
    listings = tuple(SliceListing(Coordinates(step), Path("/dump")) for step in range(2))
    with writing(engine) as session:
        dump = add_dump(session, Dump(Path("/dump"), "plain", (), listings, (), {}), "files")
        golden, target = slices_of_dump(session, dump)
    return golden.id, target.id


def measured(kind: MeasurementKind = MeasurementKind.DATA, number: int = NUMBER) -> dict[bytes, Measurement]:
    reason = Message.of("damaged") if kind is MeasurementKind.INCOMPARABLE else None
    return {
        at.to_bytes(KEY_BYTES, "big"): Measurement(kind, reason=reason, stored_roundoff=math.nan)
        for at in range(number)
    }


def kept(engine: Engine) -> int:
    with reading(engine) as session:
        return (session.scalar(text("SELECT sum(length(keys)) FROM measurement_blocks")) or 0) // KEY_BYTES


def test_what_two_measure_at_once_is_kept_once(engine: Engine, slices: tuple[int, int]) -> None:
    first_has_added, second_begins = threading.Event(), threading.Event()

    def be_first() -> None:
        with writing(engine) as session:
            add_measurements(session, *slices, measured())
            first_has_added.set()
            second_begins.wait(60)
            second_begins.clear()
            second_begins.wait(0.5)  # it waits for the end of this, or adds

    first = threading.Thread(target=be_first)
    first.start()
    first_has_added.wait(60)
    second_begins.set()
    with writing(engine) as session:
        add_measurements(session, *slices, measured())
    first.join()
    assert kept(engine) == NUMBER


def test_what_could_not_be_read_is_kept_again_when_it_could(engine: Engine, slices: tuple[int, int]) -> None:
    for kind in (MeasurementKind.INCOMPARABLE, MeasurementKind.DATA, MeasurementKind.INCOMPARABLE):
        with writing(engine) as session:
            add_measurements(session, *slices, measured(kind))
    with reading(engine) as session:
        known = load_measurements(session, *slices)
    assert {one.kind for one in known.values()} == {MeasurementKind.DATA}
    assert kept(engine) == 2 * NUMBER


def test_what_came_packed_is_kept_as_it_came_and_not_twice(engine: Engine, slices: tuple[int, int]) -> None:
    whole = measured()
    for packed in (measured(number=200), whole, whole):
        with writing(engine) as session:
            add_packed_measurements(session, *slices, pack_measurements(packed))
    with reading(engine) as session:
        assert repr(load_measurements(session, *slices)) == repr(whole)
        assert places_of(session, *slices).keys() == whole.keys()
    assert kept(engine) == NUMBER
