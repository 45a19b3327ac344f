import pytest


@pytest.fixture
def address(database: str) -> str:
    """Open databases of each kind."""
    return database
