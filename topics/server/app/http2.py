"""HTTP/2 as Hypercorn speaks it, with the gaps closed that a client could break a connection or the server through.

Theory. `H2Protocol` turns frames into streams and streams into ASGI; that is kept. Hypercorn 0.18, as read and tried:

- DATA for a request that has been answered raises KeyError and ends every stream of the connection. Here it is
  dropped, and when the answer has been out for a second the stream is reset with NO_ERROR, so that the client stops
  (RFC 9113, 8.1). Not at once: curl 7.88 takes a reset during its upload for a failure and forgets the answer.
- A CONNECT without a path, or bytes above 127 in a method or path, raise too. Here the first is a request like any
  other (the site answers 501), the second is malformed: its stream is reset.
- A stream beyond those that were promised ends its connection, though a client may not have read the promise yet.
  Here it is refused, and so is what is beyond the bound on all connections' requests. A request counts until its
  handler has ended, for a client that resets it does not end a write.
- The priority tree takes 1000 streams and any number of PRIORITY frames for streams that never come, and each step in
  it costs as much as there are streams. Priorities are deprecated (RFC 9113, 5.3): here streams take turns.
- GOAWAY at the end of a drain can overtake the last frame of the last answer. Here the connection rests, and may be
  said good-bye to, only when no answer is waiting to be sent.
- A frame is judged by its length when all of it is there. Here, when its length is.
- Frames that cost the client nothing (PING, SETTINGS, RST_STREAM, empty DATA ...) are taken without end. Here each
  costs a token, as does a request that is refused; time and answers bring some back, and so do bytes, which frames of
  DATA and WINDOW_UPDATEs go with (`Calm`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, Request, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.typing import AppWrapper, ConnectionState, WorkerContext
from hypercorn.utils import filter_pseudo_headers

from topics.server.app.tasks import Tasks
from topics.server.app.turns import PatientBuffer, Turns
from topics.server.runtime.log import log

ENDED: Final = "topics.ended"  # in the scope's state: the request ended with its head
GO_ON: Final = "topics.go_on"  # in the scope's state: call it to answer `Expect: 100-continue`
BELONGS: Final = "topics.belongs"  # in the scope's state: call it with the key of the request

_CALM_TOKENS: Final = 2000
_CALM_TOKENS_PER_S: Final = 200
_CALM_BYTES_PER_TOKEN: Final = 512
_CALM_TOKENS_PER_ANSWER: Final = 4
_CALM_DATA_PER_TOKEN: Final = 64
_LINGER_S: Final = 1.0
_CONNECTION_WINDOW: Final = 1 << 20
# The list is bounded again, by bytes and fields, when it is a request; beyond this the connection ends.
_HEADER_LIST_MAX: Final = 2**16


class Calm:
    """Tokens for frames that ask for work and bring none."""

    def __init__(self, now: float) -> None:
        self._tokens = float(_CALM_TOKENS)
        self._at = now

    def earn(self, tokens: float) -> None:
        self._tokens = min(float(_CALM_TOKENS), self._tokens + tokens)

    def spend(self, now: float) -> bool:
        """False if there are none left."""
        self.earn((now - self._at) * _CALM_TOKENS_PER_S)
        self._at = now
        self._tokens -= 1
        return self._tokens >= 0


class FrameCounts(h2.connection.H2Connection):
    """h2, which leaves it to us to refuse what is too many: it would end the connection."""

    MAX_CLOSED_STREAMS = 4096  # remembered, for frames that were under way: sixteen times what may be open

    @property
    def open_inbound_streams(self) -> int:
        super().open_inbound_streams  # noqa: B018 -- forgets the streams that have closed
        return 0


class Http2(H2Protocol):
    """One connection."""

    def __init__(
        self,
        app: AppWrapper,
        config: Config,
        context: WorkerContext,
        task_group: Tasks,
        connection_state: ConnectionState,
        ssl: bool,  # noqa: FBT001 -- Hypercorn's signature
        client: tuple[str, int] | None,
        server: tuple[str, int] | None,
        send: Callable[[Event], Awaitable[None]],
    ) -> None:
        super().__init__(app, config, context, task_group, connection_state, ssl, client, server, send)
        self._tasks = task_group
        self.connection = FrameCounts(
            config=h2.config.H2Configuration(client_side=False, header_encoding=None)
        )
        codes = h2.settings.SettingCodes
        self.connection.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                codes.MAX_CONCURRENT_STREAMS: config.h2_max_concurrent_streams,
                codes.MAX_HEADER_LIST_SIZE: config.h2_max_header_list_size,
                codes.MAX_FRAME_SIZE: config.h2_max_inbound_frame_size,
            },
        )
        self.connection.max_inbound_frame_size = config.h2_max_inbound_frame_size
        self.connection.decoder.max_header_list_size = _HEADER_LIST_MAX
        self.priority = Turns(self.stream_buffers)  # type: ignore[assignment]  # what Hypercorn calls of one
        self._receiving: set[int] = set()  # streams whose request has not ended
        self._unwanted: dict[int, int] = {}  # bytes that came for streams whose answer is out
        self._lingering: dict[int, trio.Event] = {}  # over when it need not be waited for any more
        self._calm = Calm(context.time())

    async def initiate(
        self, headers: list[tuple[bytes, bytes]] | None = None, settings: bytes | None = None
    ) -> None:
        await super().initiate(headers, settings)
        # One body that nobody takes must not hold up those of other streams.
        self.connection.increment_flow_control_window(_CONNECTION_WINDOW)
        await self._flush()

    @property
    def resting(self) -> bool:
        """No request is being served and no answer waits to be sent."""
        return not self.streams and not self.stream_buffers

    async def ask_whether_it_lives(self) -> None:
        """By a PING, which any client answers at once."""
        self.connection.ping(bytes(8))
        await self._flush()

    async def farewell(self, code: int = h2.errors.ErrorCodes.NO_ERROR) -> None:
        """GOAWAY, unless there was one."""
        if self.connection.state_machine.state is not h2.connection.ConnectionState.CLOSED:
            self.connection.close_connection(code)
        await self._flush()

    # What comes.

    async def handle(self, event: Event) -> None:
        if not isinstance(event, RawData):
            for over in self._lingering.values():
                over.set()
            await super().handle(event)
            return
        try:
            events = self.connection.receive_data(event.data)
            _check_frame_size(self.connection)
        except h2.exceptions.ProtocolError as error:
            await self.farewell(error.error_code)
            await self.send(Closed())
        else:
            await self._handle_events(events)

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        widened: set[int] = set()  # once a batch: one update of the whole connection touches every stream
        for event in events:
            is_free = isinstance(event, h2.events.StreamEnded | h2.events.ConnectionTerminated)
            if isinstance(event, h2.events.RequestReceived):
                is_free = await self._open(event)
            elif isinstance(event, h2.events.DataReceived):
                await self._data(event)
            elif isinstance(event, h2.events.StreamEnded):
                self._received(event.stream_id)
                if event.stream_id in self.streams:
                    await self.streams[event.stream_id].handle(EndBody(stream_id=event.stream_id))
            elif isinstance(event, h2.events.StreamReset):
                self._received(event.stream_id)
                await self._close_stream(event.stream_id)
                await self._drop_answer(event.stream_id)
            elif isinstance(event, h2.events.WindowUpdated):
                widened.add(event.stream_id or 0)
            elif isinstance(event, h2.events.RemoteSettingsChanged):
                widened.add(0)
            elif isinstance(event, h2.events.ConnectionTerminated):
                await self.send(Closed())
            if not is_free and not self._calm.spend(self.context.time()):
                await self._lose_patience()
                return
        for stream_id in {0} if 0 in widened else widened:
            await self._window_updated(stream_id)
        await self._flush()

    async def _open(self, event: h2.events.RequestReceived) -> bool:
        """False if the request is refused, which tells the client that it may repeat it (RFC 9113, 8.7)."""
        # One at a time: many connections with many requests each must not hold up the others.
        await trio.lowlevel.checkpoint()
        if self.context.terminated.is_set() or self._is_full:
            self._reset(event.stream_id, h2.errors.ErrorCodes.REFUSED_STREAM)
            return False
        await self._create_stream(event)
        await self.send(Updated(idle=self.resting))
        return True

    @property
    def _is_full(self) -> bool:
        here = self._tasks.running + len(self._lingering)
        return here >= self.config.h2_max_concurrent_streams or self._tasks.requests.is_full()

    async def _create_stream(self, request: h2.events.RequestReceived) -> None:
        stream_id = request.stream_id
        assert stream_id is not None
        assert request.headers is not None
        pseudo = {name: value for name, value in request.headers if name.startswith(b":")}
        method, path = pseudo[b":method"], pseudo.get(b":path", b"*")
        if not (method.isascii() and path.isascii()):
            self._reset(stream_id, h2.errors.ErrorCodes.PROTOCOL_ERROR)
            return
        self._receiving.add(stream_id)
        self.stream_buffers[stream_id] = PatientBuffer(self.context.event_class)
        stream = self.streams[stream_id] = HTTPStream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            stream_id,
        )
        await stream.handle(
            Request(
                stream_id=stream_id,
                headers=filter_pseudo_headers(request.headers),
                http_version="2",
                method=method.decode("ascii"),
                raw_path=path,
                state=ConnectionState(
                    {
                        ENDED: request.stream_ended is not None,
                        GO_ON: lambda: self._go_on(stream_id),
                        BELONGS: self._tasks.belongs,
                    }
                ),
            )
        )

    def _received(self, stream_id: int) -> None:
        """Nothing more comes of this request."""
        self._receiving.discard(stream_id)
        if stream_id in self._lingering:
            self._lingering[stream_id].set()

    async def _data(self, event: h2.events.DataReceived) -> None:
        assert event.stream_id is not None
        assert event.data is not None
        assert event.flow_controlled_length is not None
        self._calm.earn(len(event.data) / _CALM_DATA_PER_TOKEN)
        if event.stream_id in self._unwanted:
            self._unwanted[event.stream_id] += event.flow_controlled_length  # its window is not opened again
            return
        stream = self.streams.get(event.stream_id)
        if stream is not None:
            await stream.handle(Body(stream_id=event.stream_id, data=event.data))
        self._acknowledge(event.flow_controlled_length, event.stream_id)

    def _acknowledge(self, size: int, stream_id: int) -> None:
        try:
            self.connection.acknowledge_received_data(size, stream_id)
        except h2.exceptions.ProtocolError:
            return  # the stream or the connection has ended meanwhile

    async def _priority_updated(self, event: h2.events.PriorityUpdated) -> None:
        """Priorities are not kept."""

    async def _lose_patience(self) -> None:
        log.warning("http2.flooded")
        await self.farewell(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
        await self.send(Closed())

    # What goes.

    async def stream_send(self, event: StreamEvent) -> None:
        if self.closed:  # by force with thousands of answers on their way: none is made for nobody
            return
        if not isinstance(event, StreamClosed):
            await super().stream_send(event)
            if isinstance(event, EndBody) and event.stream_id in self.streams:  # taken, not reset
                self._calm.earn(_CALM_TOKENS_PER_ANSWER)
            return
        await self._close_stream(event.stream_id)
        buffer = self.stream_buffers.get(event.stream_id)
        if buffer is not None and (buffer.buffer or not buffer._complete):  # noqa: SLF001 -- nothing else tells
            # The answer was given up in the middle: say so.
            self._reset(event.stream_id, h2.errors.ErrorCodes.CANCEL)
            await self._drop_answer(event.stream_id)
            await self._flush()
        await self.send(Updated(idle=self.resting))

    async def _drop_answer(self, stream_id: int) -> None:
        """Have the sending task find the stream complete, and closed. Hypercorn leaves its buffer where it is."""
        if stream_id in self.stream_buffers:
            await self.stream_buffers[stream_id].close()
            self.priority.unblock(stream_id)
            await self.has_data.set()

    async def _send_data(self, stream_id: int) -> None:
        await super()._send_data(stream_id)
        if stream_id in self.stream_buffers:
            return
        if stream_id in self._receiving:  # all of the answer is out, the rest of the request is of no use
            self.task_group.spawn(self._stop_client, stream_id)
        await self.send(Updated(idle=self.resting))

    async def _flush(self) -> None:
        data = self.connection.data_to_send()
        if data:
            self._calm.earn(len(data) / _CALM_BYTES_PER_TOKEN)
            await self.send(RawData(data=data))

    async def _stop_client(self, stream_id: int) -> None:
        """Leave the client a moment to read its answer and stop; then reset, and make good what it has sent."""
        self._unwanted[stream_id] = 0
        over = self._lingering[stream_id] = trio.Event()
        with trio.move_on_after(_LINGER_S):
            await over.wait()
        del self._lingering[stream_id]
        unwanted = self._unwanted.pop(stream_id)
        if stream_id in self._receiving:
            self._receiving.discard(stream_id)
            self._reset(stream_id, h2.errors.ErrorCodes.NO_ERROR)
        self._acknowledge(unwanted, stream_id)
        await self._flush()

    async def _go_on(self, stream_id: int) -> None:
        try:
            self.connection.send_headers(stream_id, [(b":status", b"100")])
        except h2.exceptions.ProtocolError:
            return  # the stream or the connection has ended
        await self._flush()

    def _reset(self, stream_id: int, code: h2.errors.ErrorCodes) -> None:
        try:
            self.connection.reset_stream(stream_id, code)
        except h2.exceptions.ProtocolError:
            return  # it has ended


def _check_frame_size(connection: h2.connection.H2Connection) -> None:
    """h2 looks at a frame's length when all of it is there, which may be 16 MiB."""
    begun = connection.incoming_buffer._data[:3]  # noqa: SLF001 -- nothing else tells
    if len(begun) == 3 and int.from_bytes(begun) > connection.max_inbound_frame_size:
        raise h2.exceptions.FrameTooLargeError
