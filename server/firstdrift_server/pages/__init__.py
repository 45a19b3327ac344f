"""The HTML pages, one module per page."""

from firstdrift_server.pages import (
    board,
    comparison,
    dumps,
    home,
    language,
    login,
    match,
    new,
    node,
    notes,
    rules,
    share,
    tree,
    unmatched,
)

ROUTERS = tuple(
    module.router
    for module in (
        home,
        board,
        language,
        new,
        dumps,
        comparison,
        share,
        rules,
        tree,
        node,
        notes,
        match,
        unmatched,
        login,
    )
)
