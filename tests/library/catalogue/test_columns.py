import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Column, Engine, Integer, MetaData, Table, insert, select

from firstdrift.catalogue.columns import Exact, Instant, Listed, Name, Now, Word, restored, storable
from firstdrift.catalogue.engine import reading, writing
from firstdrift.verdict.judgement import Verdict

any_text = st.text(st.characters(codec=None, categories=None))  # lone surrogates and NUL included

things = Table(
    "things",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("number", Exact()),
    Column("name", Name()),
    Column("word", Word(Verdict)),
    Column("shape", Listed(tuple[int, ...])),
    Column("moment", Instant()),
)
many = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def table(engine: Engine) -> Engine:
    things.metadata.create_all(engine.execution_options(writes=True))
    return engine


def stored_and_read(engine: Engine, **values: object) -> object:
    (name,) = values
    with writing(engine) as session:
        key = session.execute(insert(things).values(**values).returning(things.c.id)).scalar_one()
    with reading(engine) as session:
        return session.scalar(select(things.c[name]).where(things.c.id == key))


@many
@given(number=st.none() | st.floats())
@example(number=math.nan)
@example(number=-math.inf)
@example(number=5e-324)
@example(number=None)
def test_every_float_comes_back_and_nan_is_not_none(table: Engine, number: float | None) -> None:
    found = stored_and_read(table, number=number)
    assert found == number or (isinstance(found, float) and math.isnan(found) and math.isnan(number or 0.0))


@many
@given(name=any_text)
@example(name="a\0b")
@example(name="\x1a0000")
@example(name="undecodable \udcff file name")
def test_every_name_comes_back(table: Engine, name: str) -> None:
    assert stored_and_read(table, name=name) == name


@given(any_text)
def test_what_is_stored_of_a_name_is_text_that_any_database_takes(name: str) -> None:
    text = storable(name)
    assert restored(text) == name
    assert "\0" not in text
    text.encode("utf-8")


def test_words_shapes_and_moments_come_back(table: Engine) -> None:
    moment = datetime(2024, 2, 29, 23, 59, 59, 250_000, tzinfo=UTC)
    assert stored_and_read(table, word=Verdict.ERROR) is Verdict.ERROR
    assert stored_and_read(table, shape=()) == ()
    assert stored_and_read(table, shape=(1, 5, 896)) == (1, 5, 896)
    assert stored_and_read(table, shape=None) is None
    assert stored_and_read(table, moment=moment) == moment


def test_nan_sorts_after_all_numbers(table: Engine) -> None:
    numbers = [1.0, math.inf, math.nan, -math.inf]
    with writing(table) as session:
        session.execute(insert(things), [{"number": number} for number in numbers])
    with reading(table) as session:
        found = session.scalars(select(things.c.number).order_by(things.c.number)).all()
    assert repr(list(found)) == repr([-math.inf, 1.0, math.inf, math.nan])


def test_the_clock_of_the_database_is_right(table: Engine) -> None:
    with reading(table) as session:
        now = session.scalar(select(Now()))
        later = session.scalar(select(Now(3600)))
    assert abs(now - datetime.now(UTC)) < timedelta(seconds=5)
    assert abs(later - now - timedelta(hours=1)) < timedelta(seconds=1)
