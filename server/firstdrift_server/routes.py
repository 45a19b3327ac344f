"""Every route of the server: pages for people, and the JSON API for programs."""

from fastapi import APIRouter
from fastapi.routing import APIRoute

from firstdrift_server.audit import api as audit_api
from firstdrift_server.audit import page as audit
from firstdrift_server.board import page as board
from firstdrift_server.comparison import api as comparison_api
from firstdrift_server.comparison import page as comparison
from firstdrift_server.comparison import slices_api
from firstdrift_server.dumps import api as dumps_api
from firstdrift_server.dumps import page as dumps
from firstdrift_server.export import api as export_api
from firstdrift_server.graph import page as graph
from firstdrift_server.help import page as help_page
from firstdrift_server.home import page as home
from firstdrift_server.likely import page as likely
from firstdrift_server.login import page as login
from firstdrift_server.match import api as match_api
from firstdrift_server.match import page as match
from firstdrift_server.new import api as new_api
from firstdrift_server.new import page as new
from firstdrift_server.node import api as node_api
from firstdrift_server.node import page as node
from firstdrift_server.notes import api as notes_api
from firstdrift_server.notes import page as notes
from firstdrift_server.rollout import page as rollout
from firstdrift_server.rules import api as rules_api
from firstdrift_server.rules import page as rules
from firstdrift_server.service import health, jobs, language, metrics, static
from firstdrift_server.share import api as share_api
from firstdrift_server.share import page as share
from firstdrift_server.tree import api as tree_api
from firstdrift_server.tree import page as tree
from firstdrift_server.unmatched import api as unmatched_api
from firstdrift_server.unmatched import page as unmatched
from firstdrift_server.uploads import api as uploads_api

API: tuple[APIRouter, ...] = tuple(
    module.router
    for module in (
        comparison_api,
        slices_api,
        tree_api,
        node_api,
        unmatched_api,
        rules_api,
        match_api,
        dumps_api,
        share_api,
        notes_api,
        export_api,
        new_api,
        audit_api,
        jobs,
        health,
        metrics,
        static,
        uploads_api,
    )
)

PAGES: tuple[APIRouter, ...] = tuple(
    module.router
    for module in (
        home,
        board,
        help_page,
        language,
        new,
        dumps,
        rollout,
        comparison,
        share,
        rules,
        tree,
        graph,
        node,
        notes,
        match,
        likely,
        unmatched,
        audit,
        login,
    )
)


def methods_of(path: str) -> str:
    """Say what can be asked of a path, as the header Allow says it."""
    routes = (route for router in (*API, *PAGES) for route in router.routes if isinstance(route, APIRoute))
    return ", ".join(
        sorted({method for route in routes if route.path_regex.match(path) for method in route.methods or ()})
    )
