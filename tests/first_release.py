"""A database as the first release left one behind."""

import json
import lzma
from base64 import b64decode
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Column, Connection, Engine, MetaData, Table

from firstdrift.catalogue.engine import open_engine, writing
from firstdrift.catalogue.migrate import FIRST

FIRST_RELEASE: Final = Path(__file__).parent / "library" / "catalogue" / f"step_{FIRST}.json.xz"
"""The tables of the first release in both dialects, and what lies in them after dumps were compared."""


def first_release(url: str) -> Engine:
    """Make a database as the first release left one behind: two dumps, compared, with all that people add."""
    packed = json.loads(lzma.decompress(FIRST_RELEASE.read_bytes()))
    engine = open_engine(url)
    with writing(engine) as session:
        connection = session.connection()
        for statement in packed["ddl"][engine.dialect.name]:
            connection.exec_driver_sql(statement)
        for table, content in packed["rows"].items():
            fill(connection, table, content["columns"], content["values"])
    return engine


def fill(connection: Connection, table: str, columns: list[str], rows: list[list[Any]]) -> None:
    if not rows:
        return
    insert = Table(table, MetaData(), *map(Column, columns)).insert()
    values = [dict(zip(columns, map(unpacked_value, row), strict=True)) for row in rows]
    connection.execute(insert, values)
    if connection.dialect.name == "postgresql" and "id" in columns:  # further ones are to follow
        last = max(value["id"] for value in values)
        connection.exec_driver_sql(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {last})")


def unpacked_value(value: Any) -> Any:  # noqa: ANN401 (what JSON has)
    return b64decode(value["base64"]) if isinstance(value, dict) else value
