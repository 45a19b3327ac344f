"""Understand `/c/7.json` as "the data of /c/7"."""

from starlette.types import ASGIApp, Receive, Scope, Send

SUFFIX = ".json"
KEPT = "/openapi.json"


class DataSuffix:
    """Take the suffix off before anybody looks at the path, so that guards and routes see one path."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application."""
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, marked as asking for data if its path says so."""
        path = scope.get("path", "")
        if scope["type"] == "http" and path.endswith(SUFFIX) and path != KEPT:
            scope = {**scope, "path": path.removesuffix(SUFFIX), "firstdrift.json": True}
        await self.app(scope, receive, send)
