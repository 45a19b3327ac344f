"""The JSON API, one module per thing it serves."""

from firstdrift_server.api import comparisons, folders, health, jobs, slices, static

ROUTERS = tuple(module.router for module in (comparisons, slices, folders, jobs, health, static))
