"""A request to go on as a WebSocket, accepted or refused (RFC 6455 4). `websockets` knows what one looks like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from websockets.exceptions import InvalidHandshake, InvalidHeader, InvalidHeaderValue
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from topics.kernel.errors import Code, Rejected, invalid

SUBPROTOCOL: Final = Subprotocol("topics.v0")


def accept_websocket(text: bytes) -> bytes:
    """The response to a good head that asks for a WebSocket.

    Raises:
        Rejected: invalid_request, upgrade_required.
    """
    protocol = ServerProtocol(select_subprotocol=_chosen)
    protocol.receive_data(text)
    for request in protocol.events_received():
        assert isinstance(request, Request)
        response = protocol.accept(request)
        if response.status_code == 101:
            protocol.send_response(response)
            return b"".join(protocol.data_to_send())
    why = protocol.handshake_exc
    if isinstance(why, InvalidHeaderValue) and why.name.lower() == "sec-websocket-version":
        raise Rejected(
            Code.UPGRADE_REQUIRED, f"sec-websocket-version: 13 is spoken here, not {str(why.value)[:40]!r}"
        )
    what = "its head cannot be read"
    if isinstance(why, InvalidHeader) and why.name.lower() == "sec-websocket-protocol":
        what = f"{why.name} cannot be read"  # and is not told: a key may be in it
    elif isinstance(why, InvalidHandshake):
        what = str(why)
    raise invalid("upgrade", f"this is no request for a WebSocket: {what}")


def _chosen(_: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    return SUBPROTOCOL if SUBPROTOCOL in offered else None
