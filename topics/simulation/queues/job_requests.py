"""What is said of jobs, as clients say it: over HTTP, and as a message of a WebSocket (queues 4, http-api 10).

It shares nothing with the server: fields are put together here, and leases taken apart here.
"""

from __future__ import annotations

import json
from typing import Any, Final

from topics.engine.commands import Ack, Append, Claim, Command, Extend, Nack, Pause, Purge, Redrive, Settle
from topics.kernel.ids import Lease
from topics.simulation.clients.http_messages import SimulatedRequest, write_body

_GOOD: Final = frozenset((200, 400, 404, 409, 429, 507))  # 400: nothing is said of no job
_PREFIX: Final = "lease_"
_NONCE_DIGITS: Final = 16
SETTLEMENTS: Final = {Ack: "acked", Nack: "nacked", Extend: "extended"}


def request_of_jobs(command: Command) -> SimulatedRequest | None:
    """A command as a client asks for it over HTTP; None if clients cannot."""
    match command:
        case Claim() | Ack() | Nack() | Extend():
            name = type(command).__name__.lower()
            return _post(command, command.topic, name, job_fields(command))
        case Pause():
            return _post(command, command.topic, "pause" if command.paused else "resume", None)
        case Purge():
            return _post(command, command.topic, "purge", None)
        case Redrive():
            fields = {"source": command.topic, "limit": command.count_max}
            return _post(command, command.queue, "redrive", fields)
    return None


def message_of_jobs(command: Command, request_id: int) -> SimulatedRequest | None:
    """A command as a message of a WebSocket; None if there is no such. A claim that waits without end is `work`."""
    around = b'"request_id":%d' % request_id
    if isinstance(command, Append):
        op, body = "publish", write_body(command)
    elif isinstance(command, Claim | Ack | Nack | Extend):
        op = "work" if isinstance(command, Claim) and command.told_end else type(command).__name__.lower()
        body = json.dumps(job_fields(command)).encode()
    else:
        return None
    head = b'{"op":"%b","topic":"%b",%b,' % (op.encode(), command.topic.encode(), around)
    return SimulatedRequest(
        method=b"SAY", path=op.encode(), body=head + body[1:], command=command, good=frozenset((200, 400))
    )


def job_fields(command: Claim | Settle) -> dict[str, Any]:
    """The fields of a command that claims or settles, its topic aside."""
    fields: dict[str, Any] = {"node": command.node.decode()}
    if isinstance(command, Claim):
        fields["max"] = command.count_max
        if command.lease_ms is not None:
            fields["lease_ms"] = command.lease_ms
        if command.wait_ms:
            fields["wait_ms"] = command.wait_ms
        return fields
    fields["seqs"] = list(command.seqs)
    if command.leases is not None:
        fields["lease_ids"] = ["" if lease is None else lease_text(lease) for lease in command.leases]
    if isinstance(command, Nack):
        fields["reason"] = command.reason.decode()
        if command.delay_ms is not None:
            fields["delay_ms"] = command.delay_ms
    if isinstance(command, Extend):
        fields["lease_ms"] = command.lease_ms
    return fields


def lease_text(lease: Lease) -> str:
    nonce, counter = lease
    return f"{_PREFIX}{nonce:0{_NONCE_DIGITS}x}{counter:x}"


def lease_in(text: str) -> Lease:
    digits = text.removeprefix(_PREFIX)
    return int(digits[:_NONCE_DIGITS], 16), int(digits[_NONCE_DIGITS:], 16)


def _post(command: Command, topic: str, action: str, fields: dict[str, Any] | None) -> SimulatedRequest:
    return SimulatedRequest(
        method=b"POST",
        path=b"/v0/topics/%b/%b" % (topic.encode(), action.encode()),
        body=None if fields is None else json.dumps(fields).encode(),
        command=command,
        good=_GOOD,
    )
