"""Every name of Hypercorn, h2, priority and Quart that the second plane leans on, so that an upgrade fails here first.

Hypercorn's protocols are not a public interface (decision 10). When one of these fails: read what became of the name,
mend `topics/server/app`, and only then widen the range in pyproject.toml.
"""

import inspect
from importlib import metadata

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import h11
import hypercorn.events
import hypercorn.protocol.events
import priority.priority
import pytest
import quart_trio.asgi
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.logging import Logger
from hypercorn.protocol.h2 import H2Protocol, StreamBuffer
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import filter_pseudo_headers

from topics.server.app.handover import http1_config, http2_config

PROTOCOL = ["app", "config", "context", "task_group", "connection_state", "ssl", "client", "server", "send"]
STREAM = ["app", "config", "context", "task_group", "ssl", "client", "server", "send", "stream_id"]


def parameters(function) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def source(function) -> str:
    return inspect.getsource(function)


def test_the_version_is_one_that_was_read():
    assert metadata.version("hypercorn").startswith("0.18.")


def test_signatures():
    assert parameters(H2Protocol.__init__) == PROTOCOL
    assert parameters(H11Protocol.__init__) == PROTOCOL
    assert parameters(HTTPStream.__init__) == STREAM
    assert parameters(ASGIWrapper.__init__) == ["app"]
    assert parameters(ASGIWrapper.__call__) == ["scope", "receive", "send", "sync_spawn", "call_soon"]
    assert parameters(WorkerContext.__init__) == ["max_requests"]
    assert parameters(StreamBuffer.__init__) == ["event_class"]
    assert parameters(filter_pseudo_headers) == ["headers"]
    assert parameters(quart_trio.asgi.TrioASGIHTTPConnection.__call__) == ["receive", "send"]
    assert STREAM_ID == 1


@pytest.mark.parametrize(
    ("owner", "method", "expected"),
    [
        (H2Protocol, "handle", ["event"]),
        (H2Protocol, "initiate", ["headers", "settings"]),
        (H2Protocol, "send_task", []),
        (H2Protocol, "stream_send", ["event"]),
        (H2Protocol, "_handle_events", ["events"]),
        (H2Protocol, "_create_stream", ["request"]),
        (H2Protocol, "_close_stream", ["stream_id"]),
        (H2Protocol, "_send_data", ["stream_id"]),
        (H2Protocol, "_window_updated", ["stream_id"]),
        (H2Protocol, "_priority_updated", ["event"]),
        (H2Protocol, "_flush", []),
        (H11Protocol, "handle", ["event"]),
        (H11Protocol, "initiate", []),
        (H11Protocol, "stream_send", ["event"]),
        (H11Protocol, "_check_protocol", ["event"]),
        (H11Protocol, "_create_stream", ["request"]),
        (H11Protocol, "_send_h11_event", ["event"]),
        (H11Protocol, "_send_error_response", ["status_code"]),
        (HTTPStream, "handle", ["event"]),
        (HTTPStream, "app_send", ["message"]),
        (Logger, "exception", ["message", "args", "kwargs"]),
        (Logger, "error", ["message", "args", "kwargs"]),
        (Logger, "warning", ["message", "args", "kwargs"]),
        (Logger, "critical", ["message", "args", "kwargs"]),
    ],
)
def test_what_is_overridden_or_called_is_a_coroutine_of_this_shape(owner, method, expected):
    assert inspect.iscoroutinefunction(getattr(owner, method))
    assert parameters(getattr(owner, method)) == expected


@pytest.mark.parametrize(
    ("owner", "method", "called"),
    [
        # What our overrides replace is still reached through these calls, and nothing else.
        (
            H2Protocol,
            "initiate",
            ["self.connection.initiate_connection()", "self._flush()", "self.task_group.spawn"],
        ),
        (H2Protocol, "send_task", ["self._send_data(stream_id)", "while not self.closed"]),
        (
            H2Protocol,
            "_send_data",
            ["del self.stream_buffers[stream_id]", "self.connection.end_stream(stream_id)"],
        ),
        (
            H2Protocol,
            "handle",
            ["self.closed = True", "self._close_stream(stream_id)", "self.has_data.set()"],
        ),
        (H2Protocol, "_close_stream", ["self.streams.pop(stream_id)"]),
        (H2Protocol, "_flush", ["self.connection.data_to_send()", "self.send(RawData(data=data))"]),
        (H11Protocol, "_handle_events", ["self._check_protocol(event)", "self._create_stream(event)"]),
        (H11Protocol, "stream_send", ["self.keep_alive_requests >= self.config.keep_alive_max_requests"]),
        (
            HTTPStream,
            "handle",
            ["self.task_group.spawn_app", '"state": event.state.copy()', '"raw_path": path'],
        ),
        (HTTPStream, "app_send", ["StreamClosed(stream_id=self.stream_id)"]),
    ],
)
def test_the_protocols_still_work_the_way_they_were_read(owner, method, called):
    text = source(getattr(owner, method))
    for call in called:
        assert call in text, (method, call)


def test_attributes_of_a_connection():
    context = WorkerContext(None)
    config = Config()
    protocol = H2Protocol(None, config, context, None, ConnectionState({}), False, None, None, None)
    for (
        name
    ) in "connection streams stream_buffers priority has_data closed context config task_group ssl".split():
        assert hasattr(protocol, name), name
    assert isinstance(protocol.priority, priority.priority.PriorityTree)
    assert parameters(priority.priority.PriorityTree.__init__) == ["maximum_streams"]
    buffer = StreamBuffer(context.event_class)
    assert (buffer.buffer, buffer._complete) == (b"", False)
    old = H11Protocol(None, config, context, None, ConnectionState({}), False, None, None, None)
    for name in "stream connection keep_alive_requests connection_state".split():
        assert hasattr(old, name), name
    assert context.terminated.is_set() is False


def test_names_of_h2():
    connection = h2.connection.H2Connection(
        h2.config.H2Configuration(client_side=False, header_encoding=None)
    )
    assert isinstance(connection.incoming_buffer._data, bytearray)
    assert connection.max_inbound_frame_size == 16384
    assert connection.decoder.max_header_list_size == 65536
    assert connection.state_machine.state is h2.connection.ConnectionState.IDLE
    connection.initiate_connection()
    connection.close_connection(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
    assert connection.state_machine.state is h2.connection.ConnectionState.CLOSED
    assert issubclass(h2.exceptions.FrameTooLargeError, h2.exceptions.ProtocolError)
    assert h2.exceptions.FrameTooLargeError.error_code == h2.errors.ErrorCodes.FRAME_SIZE_ERROR
    for name in (
        "RequestReceived DataReceived StreamEnded StreamReset WindowUpdated RemoteSettingsChanged ConnectionTerminated"
    ).split():
        assert hasattr(h2.events, name), name
    for name in ("MAX_CONCURRENT_STREAMS", "MAX_HEADER_LIST_SIZE", "MAX_FRAME_SIZE"):
        assert hasattr(h2.settings.SettingCodes, name), name


def test_events():
    for name in ("Closed", "RawData", "Updated"):
        assert hasattr(hypercorn.events, name), name
    for name in ("Body", "EndBody", "Request", "StreamClosed"):
        assert hasattr(hypercorn.protocol.events, name), name
    fields = list(hypercorn.protocol.events.Request.__dataclass_fields__)
    assert fields == ["stream_id", "headers", "http_version", "method", "raw_path", "state"]
    assert issubclass(h11.InformationalResponse, h11.Event)


@pytest.mark.rule("A5.29")
@pytest.mark.parametrize("config", [http1_config(), http2_config()])
def test_every_setting_is_one_that_hypercorn_knows(config):
    """A setting that was renamed would be kept, and change nothing."""
    for name in vars(config):
        assert hasattr(Config, name), name
    assert config.log.access_logger is None
    assert config.log.error_logger is None
    assert [name for name, _ in config.response_headers("h2")] == [b"date"]


@pytest.mark.rule("A5.29", "H1.1")
def test_limits_and_times_are_set():
    config = http2_config()
    assert config.h2_max_concurrent_streams == 256
    assert config.h2_max_header_list_size == 32 * 1024
    assert config.keep_alive_timeout == 75
    assert config.read_timeout > 30
    assert http1_config().keep_alive_max_requests == 1
