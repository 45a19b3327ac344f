"""All that can be asked of a server, found by walking its routes and its description of itself."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import FastAPI

import firstdrift_server


class Route(NamedTuple):
    """A method and a path with gaps, and the fields of a body, where the description of the API has one."""

    method: str
    path: str
    fields: tuple[str, ...]


def nested(where: Any) -> Iterator[Any]:  # noqa: ANN401 (the framework nests routes in private types)
    for route in where.routes:
        yield from nested(route.original_router) if hasattr(route, "original_router") else (route,)


def body_fields(description: Mapping[str, Any], schema: Any) -> tuple[str, ...]:  # noqa: ANN401 (JSON)
    """Give the names of all fields that a schema mentions."""
    found = dict.fromkeys(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(schema)))
    parts = [schema, *(description["components"]["schemas"][name] for name in found)]
    own = [name for part in parts for name in part.get("properties", {})]
    return tuple(own) + tuple(
        name for part in parts[1:] for name in body_fields(description, {"all": part.get("properties", {})})
    )


def routes_of(app: FastAPI) -> list[Route]:
    description = app.openapi()
    bodies = {
        (method.upper(), path): body_fields(description, content)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
        for content in operation.get("requestBody", {}).get("content", {}).values()
    }
    return [
        Route(method, route.path, bodies.get((method, route.path), ()))
        for route in nested(app)
        for method in sorted(route.methods)
    ]


def parameter_names(app: FastAPI) -> list[str]:
    """Give every name that the code, or the description of the API, knows as a parameter or a field."""
    sources = "".join(file.read_text() for file in Path(firstdrift_server.__path__[0]).rglob("*.py"))
    read = re.findall(r'(?:\b(?:get|getlist)\(\s*|\b(?:fields|asked|query_params)\[)f?"(\w+)"', sources)
    described = re.findall(r'"name": "(\w+)", "in": "query"', json.dumps(app.openapi()))
    form = (
        "golden",
        "target",
        "find_golden",
        "find_target",
        "from_golden",
        "from_target",
        "golden_at",
        "level",
    )
    return sorted(
        {*read, *described, *form, "step", "rank", "token", "tp", "pp", "mapping", "thresholds", "baseline"}
    )
