"""Files of tensors, read in both ways that there are."""

from collections.abc import Iterator

import pytest

from firstdrift.dumps.containers import contents
from firstdrift.files import allow_mapping


@pytest.fixture(scope="module", params=["mapped", "range by range"])
def each_way_of_reading(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let a process that maps large files read, and one that maps none, which reads all of them by ranges."""
    if request.param == "mapped":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents, "MAPPED_FROM", 1)
        allow_mapping(allowed=False)
        yield
    allow_mapping(allowed=True)
