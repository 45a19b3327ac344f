from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from firstdrift.catalogue.engine import open_engine
from firstdrift.catalogue.migrate import upgrade


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    """Open a new database whose tables are up to date."""
    engine = open_engine(database)
    upgrade(engine)
    yield engine
    engine.dispose()
