"""Build the web application: guards, routes and error answers."""

from importlib.metadata import version
from threading import Thread

from fastapi import FastAPI
from sqlalchemy import Engine

from firstdrift.catalogue.engine import open_engine, reading
from firstdrift.catalogue.migrate import upgrade
from firstdrift.catalogue.people.members import Member, may_be_token, member_of_token
from firstdrift_server.answers import explain_errors
from firstdrift_server.context import Context
from firstdrift_server.guards import guard
from firstdrift_server.routes import API, PAGES, methods_of
from firstdrift_server.sessions import Sessions
from firstdrift_server.settings import Settings
from firstdrift_server.uploads.store import Uploads


def create_app(settings: Settings) -> FastAPI:
    """Make the application that shows comparisons to browsers and scripts.

    Raises:
        CatalogueError: the database cannot be opened.
    """
    # Its pages come from a content delivery network, which the pages of this server never load from.
    app = FastAPI(title="firstdrift", version=version("firstdrift"), docs_url=None, redoc_url=None)
    engine = open_engine(settings.database, checkpoints=False)
    upgrade(engine)
    sessions = _sessions(settings, engine)
    uploads = Uploads(settings.uploads, settings.upload_quota)
    context = app.state.context = Context(settings, engine, uploads, sessions)
    # Whoever left an upload alone may never come back to begin another.
    Thread(target=uploads.clean, name="clean uploads", daemon=True).start()
    explain_errors(app, methods_of)
    for router in (*API, *PAGES):
        app.include_router(router)
    guard(app, settings, sessions, context.traffic)
    return app


def _sessions(settings: Settings, engine: Engine) -> Sessions | None:
    """Give what lets in whoever has the token, or is a member; None where no token is asked for."""
    if settings.secret is None:
        return None

    def known(shown: str) -> Member | None:
        if not may_be_token(shown):
            return None
        with reading(engine) as session:
            return member_of_token(session, shown)

    return Sessions(settings.secret, settings.ended_sessions, member_of=known)
