"""What a request must pass before it reaches a route, whatever the route.

log ▶ headers ▶ language ▶ .json suffix ▶ plain query ▶ host ▶ origin ▶ body size ▶ audit ▶ login ▶ turns
▶ failures
"""

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware

from firstdrift_server.guards.audit import AuditGuard
from firstdrift_server.guards.body import BodyGuard
from firstdrift_server.guards.data_suffix import DataSuffix
from firstdrift_server.guards.failures import FailureGuard
from firstdrift_server.guards.headers import SecurityHeaders
from firstdrift_server.guards.host import HostGuard
from firstdrift_server.guards.login import LoginGuard
from firstdrift_server.guards.origin import OriginGuard
from firstdrift_server.guards.plain_query import PlainQuery
from firstdrift_server.guards.request_log import RequestLog
from firstdrift_server.guards.turns import TurnGuard
from firstdrift_server.reader_language import LanguageOfReader
from firstdrift_server.sessions import Sessions
from firstdrift_server.settings import Settings
from firstdrift_server.traffic import Traffic


def guard(app: FastAPI, settings: Settings, sessions: Sessions | None, traffic: Traffic) -> None:
    """Put the guards around an application; what is added last is met first."""
    app.add_middleware(FailureGuard)
    app.add_middleware(TurnGuard)
    app.add_middleware(LoginGuard, sessions=sessions, open_metrics=settings.open_metrics)
    app.add_middleware(AuditGuard)
    app.add_middleware(BodyGuard, largest=settings.largest_body)
    app.add_middleware(OriginGuard)
    app.add_middleware(HostGuard, settings=settings)
    app.add_middleware(PlainQuery)
    app.add_middleware(DataSuffix)
    app.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)
    app.add_middleware(LanguageOfReader)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(RequestLog, traffic=traffic)
