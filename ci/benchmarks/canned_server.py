"""A server that answers the same bytes to everything: what the load generator can do when nobody is asked to work.

`--port-file FILE --request-bytes N --answer-bytes N`: an answer goes out whenever so many bytes have come in.
"""

from __future__ import annotations

import argparse
import select
import socket
from pathlib import Path

RECEIVE_BYTES = 1 << 16


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port-file", type=Path, required=True)
    parser.add_argument("--request-bytes", type=int, required=True)
    parser.add_argument("--answer-bytes", type=int, required=True)
    options = parser.parse_args()
    body = b"x" * options.answer_bytes
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening, select.epoll() as poller:
        name = options.port_file.with_suffix(".new")
        name.write_text(str(listening.getsockname()[1]), encoding="ascii")
        name.rename(options.port_file)
        poller.register(listening.fileno(), select.EPOLLIN)
        _serve(listening, poller, options.request_bytes, answer)


def _serve(listening: socket.socket, poller: select.epoll, request_bytes: int, answer: bytes) -> None:
    """Until a signal ends the process."""
    connections: dict[int, socket.socket] = {}
    got: dict[int, int] = {}
    while not poller.closed:
        for fd, _ in poller.poll():
            connection = connections.get(fd)
            if connection is None:
                new, _ = listening.accept()
                connections[new.fileno()], got[new.fileno()] = new, 0
                poller.register(new.fileno(), select.EPOLLIN)
                continue
            size = len(connection.recv(RECEIVE_BYTES))
            if size == 0:
                poller.unregister(fd)
                connections.pop(fd).close()
                continue
            got[fd] += size
            if got[fd] >= request_bytes:
                got[fd] -= request_bytes
                connection.sendall(answer)


if __name__ == "__main__":
    main()
