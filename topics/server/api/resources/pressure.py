"""How overloaded the server is, and what is left off because of it (http-api 11, semantics 10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from topics.sched import bands
from topics.sched.governor import PressureStep
from topics.server.api import schemas as s
from topics.server.api.call import HandlerCall
from topics.server.api.message import Answer
from topics.server.api.routes import Route
from topics.server.auth.scopes import Names


async def pressure(call: HandlerCall) -> Answer:
    """Pressure as of the last look, and what waits now."""
    hub = call.runtime.hub
    governor, ready = hub.governor, hub.ready
    return call.ok(
        {
            "pressure": round(governor.pressure, 4),
            "step": governor.step.name.lower(),
            "signals": {
                "ready_topics": governor.ready,
                "scheduling_latency_ms": round(governor.latency_us / 1000, 3),
                "busy": round(governor.busy, 4),
            },
            "bands": dict(zip(bands.NAMES, ready.by_band, strict=True)),
            "held_topics": ready.held,
            "coalesce_ms": governor.coalesce_us / 1000,
            "commit_ms": governor.commit_us / 1000,
        }
    )


# How it is described.

_SHARE: Final[s.Schema] = {"type": "number", "minimum": 0, "maximum": 1}
_MS: Final[s.Schema] = {"type": "number", "minimum": 0}
SCHEMAS: Final[Mapping[str, s.Schema]] = {
    "PressureSignals": s.object_of(
        "What it comes from, as of the last look", "*",
        ready_topics=s.count("Topics whose watchers were still to be told"),
        scheduling_latency_ms={**_MS, "description": "How long they waited for their turn, smoothed"},
        busy={**_SHARE, "description": "The share of time in which the loop was busy, or of threads that were"},
    ),
    "PressureBands": s.object_of(
        "Topics whose watchers are still to be told, by band of effective priority", "*",
        **{name: s.count("Now") for name in bands.NAMES},
    ),
    "Pressure": s.answer_of(
        "Looked at every 100 ms while topics wait for their turn; 0 while none does",
        pressure={**_SHARE, "description": "0: all is told at once"},
        step={
            "type": "string", "enum": [step.name.lower() for step in PressureStep],
            "description": "What is left off, each with those before it",
        },
        signals=s.ref("PressureSignals"), bands=s.ref("PressureBands"),
        held_topics=s.count("Topics below priority 0, whose watchers wait for pressure to fall; reads return all"),
        coalesce_ms={**_MS, "description": "How long news of a topic waits for more of it"},
        commit_ms={**_MS, "description": "How long a write that is synced waits for others"},
    ),
}  # fmt: skip
ROUTES: Final = (
    Route(
        name="pressure", method=b"GET", path="/v0/admin/pressure", handler=pressure, scope="admin",
        names=Names.SERVER, tag="operations", summary="How overloaded the server is, and what is left off",
        text="What is left off is work and eagerness, never data: every record can be read at any pressure.",
        answers={200: ("Now", "Pressure")},
    ),
)  # fmt: skip
