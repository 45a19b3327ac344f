"""All routes of an application, however deeply nested."""

from collections.abc import Iterator
from typing import Any


def routes(where: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 (the framework nests routes in private types)
    """Give method and path of every route."""
    for route in where.routes:
        if hasattr(route, "original_router"):
            yield from routes(route.original_router)
        else:
            yield from ((method, route.path) for method in route.methods - {"HEAD"})
