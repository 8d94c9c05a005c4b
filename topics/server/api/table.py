"""Every route and op of the server: a table a resource, each beside its handlers and with the schemas of its bodies."""

from __future__ import annotations

from typing import Final

from topics.server.api import node, schemas
from topics.server.api.resources import (
    backup,
    consumers,
    job_ops,
    jobs,
    keys,
    pressure,
    reads,
    records,
    routers,
    schedules,
    sockets,
    topics,
    watch,
    watch_ops,
    why,
    work,
)
from topics.server.api.routes import RouteTable

_RESOURCES: Final = (
    topics,
    records,
    reads,
    consumers,
    watch,
    jobs,
    work,
    schedules,
    routers,
    why,
    sockets,
    node,
    backup,
    pressure,
    keys,
)


def route_table() -> RouteTable:
    """The one table both planes serve."""
    described = dict(schemas.SCHEMAS)
    for resource in _RESOURCES:
        assert described.keys().isdisjoint(resource.SCHEMAS)
        described |= resource.SCHEMAS
    routes = [route for resource in _RESOURCES for route in resource.ROUTES]
    return RouteTable(routes, described, [*records.OPS, *job_ops.OPS, *watch_ops.OPS, *sockets.OPS])
