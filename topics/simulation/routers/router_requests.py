"""What is said of routers, as clients say it over HTTP (http-api 8).

It shares nothing with the server: fields are put together here.
"""

from __future__ import annotations

import json
from typing import Final

from topics.engine.commands import Command, DeleteRouter, PutRouter
from topics.simulation.clients.http_messages import SimulatedRequest

_FLAGS: Final = ("preserve_node", "preserve_tag", "create_dest", "allow_cycle")


def request_of_router(command: Command) -> SimulatedRequest | None:
    """A command as a client asks for it; None if it is not of a router."""
    if isinstance(command, DeleteRouter):
        return SimulatedRequest(
            method=b"DELETE", path=_path(command.router), command=command, good=frozenset((200, 507))
        )
    if not isinstance(command, PutRouter):
        return None
    fields = {name: getattr(command, name) for name in ("source", "dest", "guarantee", *_FLAGS)}
    fields["filter"] = None if command.filter is None else command.filter.wire()
    return SimulatedRequest(
        method=b"PUT", path=_path(command.router), body=json.dumps(fields).encode(), command=command,
        good=frozenset((200, 201, 409, 507)),
    )  # fmt: skip


def request_of_look(router: str) -> SimulatedRequest:
    return SimulatedRequest(method=b"GET", path=_path(router), good=frozenset((200, 404)))


def _path(router: str) -> bytes:
    return b"/v0/routers/" + router.encode()
