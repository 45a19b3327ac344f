"""Insert many rows at once, column by column: a hundred thousand in about a second.

Very many are inserted in several transactions, so that nobody waits long for the write lock.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import repeat
from typing import Any

from sqlalchemy.orm import Session

from firstdrift.catalogue.tables import Entry

BATCH = 20_000


def insert_many(
    session: Session,
    entry: type[Entry],
    columns: Mapping[str, Sequence[Any]],
    *,
    on_conflict: str = "",
    **same: object,
) -> None:
    """Insert rows into the table of an entry.

    Args:
        session: a writing session.
        entry: which table.
        columns: the values of each column, one for each row; all of equal length.
        on_conflict: what to do with rows that are there already, as SQL that both databases know.
        same: columns that have one value for all rows.
    """
    connection = session.connection()
    dialect = connection.dialect
    types = {column.name: column.type.dialect_impl(dialect) for column in entry.__table__.columns}
    converted: list[Iterable[Any]] = []
    for name, values in columns.items():
        convert = types[name].bind_processor(dialect)
        converted.append(values if convert is None else map(convert, values))
    converted += list(map(repeat, same.values()))
    rows = list(zip(*converted, strict=False))
    if rows:
        quote = dialect.identifier_preparer.quote
        names = ", ".join(map(quote, (*columns, *same)))
        marks = ", ".join(["?" if dialect.paramstyle == "qmark" else "%s"] * len(converted))
        # Nothing in it comes from outside: names of tables and columns, and marks.
        into = f"INSERT INTO {quote(entry.__tablename__)} ({names}) VALUES ({marks})"  # noqa: S608
        connection.exec_driver_sql(f"{into} {on_conflict}", rows)


def insert_in_batches(
    writing: Callable[[], AbstractContextManager[Session]],
    entry: type[Entry],
    columns: Mapping[str, Sequence[Any]],
    *,
    on_conflict: str = "",
    **same: object,
) -> None:
    """Insert rows as `insert_many` does, a batch in each transaction."""
    count = len(next(iter(columns.values())))
    for start in range(0, count, BATCH):
        batch = {name: values[start : start + BATCH] for name, values in columns.items()}
        with writing() as session:
            insert_many(session, entry, batch, on_conflict=on_conflict, **same)
