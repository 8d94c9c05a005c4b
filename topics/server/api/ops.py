"""What can be asked over a WebSocket: rows of the table of ops, and a message on its way through its op (http-api 10).

A message is a JSON object whose `op` says what is asked; what answers it is one too. An op decodes what is its own, and
returns when its command has taken effect: the next message of the connection waits for that, and for nothing more. The
answer is made later, when it is its turn to be sent, so that whoever does not read has nothing encoded for him.

What an op and a handler of HTTP do alike is one function of the resource, which takes and gives typed values.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

import attrs
import msgspec

from topics.embed.aio.hands import Work
from topics.embed.aio.runtime import Runtime
from topics.embed.aio.watcher import Pushing
from topics.engine.commands import Command
from topics.engine.replies import Reply
from topics.engine.tickets import Ticket
from topics.kernel.errors import TopicsError
from topics.kernel.ids import check_topic_name
from topics.server.api.bodies.envelope import MessageFields, name_in
from topics.server.api.bodies.fields import ABSENT
from topics.server.api.memory import Share
from topics.server.api.resources.state import ServerState
from topics.server.auth.keys import Key
from topics.server.auth.scopes import Names, Scopes, needed
from topics.store.writer import BatchTiming

Fields = Callable[[], bytes]  # of an answer: a JSON object. Raises `TopicsError` for a refusal


def nothing_yet() -> bytes:
    raise AssertionError("it is not answered yet")


class OpsConnection(Protocol):
    """A connection as its ops know it. `key`: whose it is. `works`: by queue, what it is pushed. `claims`: of each
    command that claims and is not answered, what is called if the connection ends first. `watch`: the topics that it
    watches.
    """

    key: Key
    works: dict[str, Work]
    watch: Pushing | None
    claims: dict[OpCall, Callable[[], None]]

    def ready(self, call: OpCall) -> None:
        """The answer can be made. Once a message."""
        ...

    def start(self, task: Callable[[], Awaitable[object]]) -> None:
        """A task beside the messages to come. It is cancelled when the connection ends, and should end when the server
        drains. It raises nothing.
        """
        ...

    async def push(self, messages: Sequence[bytes]) -> None:
        """Messages that answer none. Behind this they are on their way, and the next may be made; if it is cancelled
        they are never sent.

        Raises:
            BrokenResourceError: the connection is being closed, and they are never sent.
        """
        ...

    def push_nowait(self, make: Callable[[], Sequence[bytes]]) -> bool:
        """Push the messages that `make` makes, if nothing is to be sent before them. If something is, `make` is not
        called, and this is False.
        """
        ...

    def ask_life(self, heard: Callable[[], None]) -> None:
        """Ask the peer whether it lives. `heard` is called once, when anything comes of it."""
        ...

    def at_end(self, give_back: Callable[[], None]) -> None:
        """Call this when the connection has ended, however it ended. The last that was given comes first."""
        ...


class OpCall(msgspec.Struct, eq=False):
    """A message. `size`: its bytes; who has decoded `text` lets go of it. `is_bug`: its answer tells of one. `room`:
    what its answer holds of the memory for answers, until it is sent; `unsent`: called if it never is.
    """

    site: ServerState
    session: OpsConnection
    text: bytes
    size: int
    started: float
    op: Op | None = None
    request_id: bytes | None = None
    is_bug: bool = False
    room: Share | None = None
    unsent: Callable[[], None] | None = None
    asked_text: msgspec.Raw = ABSENT
    topic_text: msgspec.Raw = ABSENT
    fields: Fields = nothing_yet

    @property
    def where(self) -> str:
        """What it is counted as."""
        return "" if self.op is None else self.op.name

    def open(self, envelope: MessageFields) -> None:
        """What is around its command is known from here on."""
        if envelope.request_id is not ABSENT:
            self.request_id = bytes(envelope.request_id)
        self.asked_text, self.topic_text = envelope.op, envelope.topic

    def asked(self) -> str:
        """The name of its op. Raises `Rejected(invalid_request)` if there is none."""
        return name_in("op", self.asked_text)

    @property
    def runtime(self) -> Runtime:
        """The engine's runtime.

        Raises:
            Rejected: not_ready while the log is being recovered.
        """
        return self.site.ready_runtime()

    @property
    def has_topic(self) -> bool:
        return self.topic_text is not ABSENT

    def topic(self) -> str:
        """The topic asked for.

        Raises:
            Rejected: invalid_request if there is none, or a bad name; forbidden if it is outside the key's prefixes.
        """
        name = check_topic_name(name_in("topic", self.topic_text))
        self.session.key.check_name(name)
        return name

    async def submit(self, command: Command, fields: Callable[[Reply, BatchTiming], bytes]) -> None:
        """Propose. `fields` makes of its reply, and of what its batch took, those of the answer."""
        await self.runtime.begin(command, partial(self._ended, fields))

    def submit_now(self, command: Command, fields: Callable[[Reply, BatchTiming], bytes]) -> bool:
        """As `submit`, without waiting. False if that could take some: then nothing was proposed."""
        return self.runtime.begin_now(command, partial(self._ended, fields))

    def answer(self, fields: Fields) -> None:
        """What the answer is going to say."""
        self.fields = fields
        self.session.ready(self)

    def taken(self) -> None:
        """The answer is on its way."""
        if self.room is not None:
            self.room.release()

    def dropped(self) -> None:
        """Nobody will have the answer."""
        self.taken()
        unsent, self.unsent = self.unsent, None
        if unsent is not None:
            unsent()

    def refuse(self, error: TopicsError) -> None:
        def fields() -> bytes:
            raise error

        self.answer(fields)

    def _ended(
        self, fields: Callable[[Reply, BatchTiming], bytes], ticket: Ticket, took: BatchTiming
    ) -> None:
        self.answer(lambda: fields(ticket.result(), took))


@attrs.frozen(kw_only=True)
class Op:
    """A row. `name`, `answer`: the `op` of the message and of the one that answers it; `take`: see above; `begin`: the
    same without waiting, if it is True; else nothing was done, whatever it raises.

    `scope`, `names`, `body_names`: as of a route. `OpCall.topic` is how an op has its topic, and checks it.
    """

    name: str
    answer: str
    scope: str
    take: Callable[[OpCall], Awaitable[None]]
    names: Names = Names.TOPIC
    body_names: tuple[str, ...] = ()
    begin: Callable[[OpCall], bool] | None = None
    needs: Scopes = attrs.field(init=False)
    head: bytes = attrs.field(init=False)  # of the message that answers

    @needs.default
    def _needed(self) -> Scopes:
        return needed(self.scope)

    @head.default
    def _head(self) -> bytes:
        return _head(self.answer)


def message_of(op: str, request_id: bytes | None, fields: bytes) -> bytes:
    """A message to the peer. `fields`: a JSON object."""
    return with_head(_head(op), request_id, fields)


def _head(op: str) -> bytes:
    return b'{"op":"%b"' % op.encode()


def with_head(head: bytes, request_id: bytes | None, fields: bytes) -> bytes:
    """As `message_of`. `head`: of its op."""
    if request_id is not None:
        head = b'%b,"request_id":%b' % (head, request_id)
    return b"%b,%b" % (head, fields[1:]) if len(fields) > 2 else head + b"}"
