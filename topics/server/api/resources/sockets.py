"""The path of the WebSocket, and what concerns no resource there (http-api 10).

The data plane goes on with the other protocol before there is anything to handle. Who asks for the path without an
upgrade is told how to ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from topics.kernel.errors import Code, Rejected
from topics.server.api import schemas as s
from topics.server.api.bodies.envelope import enveloped
from topics.server.api.bodies.fields import OpenForm
from topics.server.api.call import HandlerCall
from topics.server.api.message import Answer
from topics.server.api.ops import Op, OpCall
from topics.server.api.routes import Route


async def websocket(call: HandlerCall) -> Answer:
    """Asked for without an upgrade."""
    raise Rejected(
        Code.UPGRADE_REQUIRED,
        f"upgrade: {call.head.path.decode('latin-1')} is a WebSocket; ask with `Connection: Upgrade`,"
        " `Upgrade: websocket`, over HTTP/1.1",
    )


class PingIn(msgspec.Struct, gc=False):
    """Nothing is asked."""


_ping: Final = OpenForm(enveloped(PingIn))


async def ping(call: OpCall) -> None:
    """The connection lives, and whatever was asked before this has taken effect. `now`: by which leases end, in ms."""
    _, ignored = _ping.decode(call.text)
    runtime = call.site.runtime
    fields: dict[str, object] = {} if runtime is None else {"now": runtime.engine.now_ms()}
    fields |= {"ignored": ignored} if ignored else {}
    call.answer(lambda: msgspec.json.encode(fields))


OPS: Final = (Op(name="ping", answer="pong", scope=None, take=ping),)
SCHEMAS: Final[Mapping[str, s.Schema]] = {}
ROUTES: Final = (
    Route(
        name="websocket", method=b"GET", path="/v0/ws", handler=websocket, scope=None, upgrade=b"websocket",
        summary="A WebSocket: commands and their answers as JSON messages",
        text="A message is a JSON object in a text frame. Its `op` says what is asked: `ping`, answered by `pong`;"
        " `publish`, a body of `POST /v0/topics/{topic}` with `topic` beside it, answered by `ack` with the answer of"
        " that. `claim`, `ack`, `nack`, `extend` likewise, answered by `claimed`, `acked`, `nacked`, `extended`;"
        " `work` with `topic`, `node`, `max`, `lease_ms`, answered by `working` and then by a `job` for each job, until"
        " `stop_work`, answered by `stopped`. `subscribe` with `topics` as in `POST /v0/watch`, or `topic` and its"
        " start, answered by `subscribed` and then by `record`, `tombstone`, `caught_up`, `topic_deleted` as they come,"
        " until `unsubscribe`, answered by `unsubscribed`. A `request_id` of any kind comes back in the answer."
        " Commands take effect in order; answers may overtake each other. What is refused is answered by `error`, with"
        " `code`, `message` and perhaps `detail`, and the connection goes on. Over HTTP/2 this path is 501"
        " `not_implemented`.",
        errors=(Code.UPGRADE_REQUIRED, Code.NOT_IMPLEMENTED),
    ),
)  # fmt: skip
