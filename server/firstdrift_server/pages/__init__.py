"""The HTML pages, one module per page."""

from firstdrift_server.pages import comparison, home, language, login, match, new, node, tree, unmatched

ROUTERS = tuple(
    module.router for module in (home, language, new, comparison, tree, node, match, unmatched, login)
)
