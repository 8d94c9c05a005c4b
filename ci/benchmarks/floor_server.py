"""The floor server: httptools on a raw Trio stream, and group commit. What any HTTP server in Python pays at least.

No route table, no check beyond what httptools does, no limit, no date: whatever is sent is a write to the one topic.
The ratios of B4 and B5 are to this one.
"""

from __future__ import annotations

import socket

import httptools
import trio

from ci.benchmarks.floor_commit import Commit, main

RECEIVE_BYTES = 1 << 16


class Request:
    """The callbacks of one connection's parser."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.whole = False

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def on_message_complete(self) -> None:
        self.whole = True


async def serve(commit: Commit, listening: socket.socket) -> None:
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))

    async def connection(stream: trio.SocketStream) -> None:
        await _serve_connection(stream, commit)

    await trio.serve_listeners(connection, [listener])


async def _serve_connection(stream: trio.SocketStream, commit: Commit) -> None:
    request = Request()
    parser = httptools.HttpRequestParser(request)
    async with stream:
        while data := await stream.receive_some(RECEIVE_BYTES):
            parser.feed_data(data)
            if request.whole:
                body = b"".join(request.pieces)
                request.pieces, request.whole = [], False
                answer = await commit.write(body)
                await stream.send_all(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                    % (len(answer), answer)
                )


if __name__ == "__main__":
    main(serve)
