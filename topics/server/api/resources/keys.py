"""Whom the server lets in: its keys by their names, what each may and what it does now (operations 4, decision 110)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from topics.server.api import schemas as s
from topics.server.api.call import HandlerCall
from topics.server.api.message import Answer
from topics.server.api.routes import Route
from topics.server.auth.scopes import Names, Scope


async def keys(call: HandlerCall) -> Answer:
    """As the file of keys has them, or TOPICS_API_KEYS. No part of a key is known here, and none of it is told."""
    now_ms, now_s = call.runtime.engine.now_ms(), time.perf_counter()
    known = call.site.keys
    return call.ok(
        {
            "auth": known.is_on,
            "keys": [
                {
                    **line.fields(),
                    "asks": key is call.key,
                    "used_ts": None if key.used is None else now_ms - int((now_s - key.used) * 1000),
                    "requests": key.requests,
                    "streams": key.streams,
                    "watches": key.sessions,
                }
                for line, key in known.listed()
            ],
        }
    )


# How it is described.

SCHEMAS: Final[Mapping[str, s.Schema]] = {
    "KeyTold": s.object_of(
        "A key, and what it does now", "*",
        id=s.text("The beginning of its digest, as `topics key ls` has it"),
        name=s.text("For people; empty if nobody has named it"),
        scopes=s.list_of(s.text("", enum=[scope.value for scope in Scope]), "What it may"),
        prefixes=s.list_of(s.text("Of names"), "Where it may that; everywhere if there is none"),
        asks=s.flag("It is the one that asks"),
        used_ts=s.or_null({**s.TS, "description": "Its last request; null: none since the server's start"}),
        requests=s.count("Under way"), streams=s.count("Of events, and WebSockets, that are open"),
        watches=s.count("Sessions of watches"),
    ),
    "KeyList": s.answer_of(
        "", auth=s.flag("A key is asked for; else everybody who reaches the port may do everything"),
        keys=s.list_of(s.ref("KeyTold"), "In the order of the file; 1000 at most"),
    ),
}  # fmt: skip
ROUTES: Final = (
    Route(
        name="keys", method=b"GET", path="/v0/admin/keys", handler=keys, scope="admin",
        names=Names.SERVER, tag="operations", summary="The keys: names, scopes, prefixes, and what each does now",
        text="Never a key, nor anything that lets in who has it. Keys are made and revoked by `topics key`.",
        answers={200: ("Now", "KeyList")},
    ),
)  # fmt: skip
