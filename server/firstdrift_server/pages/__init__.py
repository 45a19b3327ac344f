"""The HTML pages, one module per page."""

from firstdrift_server.pages import (
    comparison,
    home,
    language,
    login,
    match,
    new,
    node,
    notes,
    share,
    tree,
    unmatched,
)

ROUTERS = tuple(
    module.router
    for module in (home, language, new, comparison, share, tree, node, notes, match, unmatched, login)
)
