"""The JSON API, one module per thing it serves."""

from firstdrift_server.api import (
    closeups,
    comparisons,
    dumps,
    exports,
    folders,
    health,
    jobs,
    match_sets,
    rules,
    sharing,
    slices,
    static,
    uploads,
)

ROUTERS = tuple(
    module.router
    for module in (
        comparisons,
        slices,
        closeups,
        rules,
        match_sets,
        dumps,
        sharing,
        exports,
        folders,
        jobs,
        health,
        static,
        uploads,
    )
)
