"""What /openapi.json says of the API is so: whatever fits the description, or nearly, is answered as it says.

Values are made from the schemas themselves; `make soak` has schemathesis do the same, too.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx2
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from soak import record, rounds

EXAMPLES = rounds(300, 12_000)
UNDESCRIBED = {307, 400, 405, 413, 415}
"""Statuses of requests that are none of the API: another address or method, no HTTP, too long, no JSON."""

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


class Operation(NamedTuple):
    """A method of a path, what it takes, and what it answers."""

    method: str
    path: str
    said: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"{self.method} {self.path}"


@pytest.fixture(scope="module")
def description(client: TestClient) -> Mapping[str, Any]:
    said: Mapping[str, Any] = client.get("/openapi.json").json()
    return said


def operations(description: Mapping[str, Any]) -> Iterator[Operation]:
    for path, methods in description["paths"].items():
        for method, said in methods.items():
            yield Operation(method.upper(), path, said)


class Maker:
    """Makes strategies of schemas."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        self._schemas = description.get("components", {}).get("schemas", {})

    def values(self, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        """Give what fits a schema, and now and then what does not."""
        return st.integers(0, 11).flatmap(lambda roll: anything if not roll else self._fitting(schema))

    def _fitting(self, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        if "$ref" in schema:
            return self._fitting(self._schemas[schema["$ref"].rpartition("/")[2]])
        if several := schema.get("anyOf") or schema.get("oneOf"):
            return st.one_of(*map(self.values, several))
        if "enum" in schema or "const" in schema:
            return st.sampled_from(schema.get("enum", [schema.get("const")]))
        made = {
            "integer": self._integers,
            "number": self._numbers,
            "string": self._texts,
            "array": self._lists,
            "object": self._objects,
        }.get(str(schema.get("type")))
        simple = {"boolean": st.booleans(), "null": st.none()}.get(str(schema.get("type")), anything)
        return made(schema) if made else simple

    def _integers(self, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        least, most = schema.get("minimum", -(2**70)), schema.get("maximum", 2**70)
        return st.sampled_from([1, 1, 2, 0, least, most, least - 1, most + 1]) | st.integers(
            int(least), int(most)
        )

    def _numbers(self, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        return st.floats(schema.get("minimum"), schema.get("maximum"), allow_nan=False, allow_infinity=False)

    def _texts(self, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        known = st.sampled_from(
            ["model", "Module.model.layers.0", "csv", "error", "/", "1", "\ud800", "\0", ""]
        )
        return known | st.text(max_size=min(20, schema.get("maxLength", 20)))

    def _lists(self, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        least = schema.get("minItems", 0)
        return st.lists(self.values(schema.get("items", {})), min_size=least, max_size=least + 2)

    def _objects(self, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        fields = {name: self.values(one) for name, one in schema.get("properties", {}).items()}
        needed = set(schema.get("required", ()))
        if not fields:
            return st.dictionaries(
                st.text(max_size=8), self.values(schema.get("additionalProperties") or {}), max_size=3
            )
        return st.fixed_dictionaries(
            {name: one for name, one in fields.items() if name in needed},
            optional={name: one for name, one in fields.items() if name not in needed},
        )


def requests_of(client: TestClient, operation: Operation, maker: Maker) -> st.SearchStrategy[httpx2.Request]:
    """Give requests of an operation; what need not be said is left out now and then."""
    said = operation.said.get("parameters", [])

    def parts(where: str) -> st.SearchStrategy[dict[str, Any]]:
        named = {
            needed: {
                one["name"]: maker.values(one["schema"])
                for one in said
                if (one["in"], one["required"]) == (where, needed)
            }
            for needed in (True, False)
        }
        return st.fixed_dictionaries(named[True], optional=named[False])

    content = operation.said.get("requestBody", {}).get("content", {})
    body = maker.values(content["application/json"]["schema"]).map(json.dumps) if content else st.just("")

    def built(path: dict[str, Any], query: dict[str, Any], said: str) -> httpx2.Request:
        place = re.sub(r"\{(\w+)\}", lambda gap: _quoted(path[gap[1]]) or "-", operation.path)
        asked = "&".join(f"{name}={_quoted(value)}" for name, value in query.items())
        headers = {"content-type": "application/json"} if said else {}
        address = f"{place}?{asked}" if asked else place
        return client.build_request(operation.method, address, content=said.encode(), headers=headers)

    return st.builds(built, parts("path"), parts("query"), body)


def _quoted(value: Any) -> str:  # noqa: ANN401 (whatever JSON has)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def complaints(
    answer: httpx2.Response, operation: Operation, description: Mapping[str, Any]
) -> Iterator[str]:
    """Say in which way an answer is not what was described."""
    described = operation.said["responses"]
    status = str(answer.status_code)
    if answer.status_code in {500, 501, 502, 504}:
        yield f"a fault: {answer.text[:200]}"
    elif status not in described and answer.status_code not in UNDESCRIBED:
        yield f"{status} is not among {sorted(described)}: {answer.text[:200]}"
    kinds = described.get(status, {}).get("content", {})
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if kinds and kind not in kinds:
        yield f"{kind} is not among {sorted(kinds)}"
    is_error = answer.status_code >= 400
    schema = {"$ref": "#/components/schemas/ErrorOut"} if is_error else kinds.get(kind, {}).get("schema")
    if schema and kind == "application/json":
        whole = {**schema, "components": description["components"]}
        yield from (error.message for error in Draft202012Validator(whole).iter_errors(answer.json()))


def test_the_api_answers_as_it_is_described(client: TestClient, description: Mapping[str, Any]) -> None:
    maker = Maker(description)
    each = list(operations(description))
    made = {repr(one): requests_of(client, one, maker) for one in each}
    seen: Counter[int] = Counter()

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def answers(data: st.DataObject) -> None:
        operation = data.draw(st.sampled_from(each))
        answer = client.send(data.draw(made[repr(operation)]))
        seen[answer.status_code] += 1
        wrong = list(complaints(answer, operation, description))
        asked = f"{answer.request.method} {answer.request.url} {answer.request.content[:300]!r}"
        assert not wrong, f"{asked}: {wrong[:3]}"

    answers()
    statuses = ", ".join(f"{count:,} of {status}" for status, count in sorted(seen.items()))
    record(
        "error_shape",
        f"{sum(seen.values()):,} requests made of the schemas of {len(each)} operations: all answered as"
        f" described ({statuses})",
    )


def test_every_error_that_is_described_has_the_one_shape(description: Mapping[str, Any]) -> None:
    for operation in operations(description):
        for status, said in operation.said["responses"].items():
            if int(status) >= 400:
                assert said["content"]["application/json"]["schema"] == {
                    "$ref": "#/components/schemas/ErrorOut"
                }, (operation, status)
