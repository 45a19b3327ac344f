"""Understand `/c/7.json` as "the data of /c/7".

The API gives data anyway, and there a name may end so: `/api/v1/uploads/dumps/run.json`.
"""

from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

SUFFIX = ".json"
KEPT = ("/openapi.json", "/api/")
"""How paths begin that are taken as they are."""


@dataclass(frozen=True, slots=True)
class DataSuffix:
    """Take the suffix off before anybody looks at the path, so that guards and routes see one path."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, marked as asking for data if its path says so."""
        path = scope.get("path", "")
        if scope["type"] == "http" and path.endswith(SUFFIX) and not path.startswith(KEPT):
            scope = {**scope, "path": path.removesuffix(SUFFIX), "firstdrift.json": True}
        await self.app(scope, receive, send)
