"""A forked child and its parent never share a connection: each gets the answers to its own requests (operations 5)."""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading

import pytest

import topics
from tests.client.peer import answer
from topics.cli.demo.private_server import PrivateServer

pytestmark = pytest.mark.rule("O5.9")

FORK = multiprocessing.get_context("fork")
WRITES = 100
LATER_S = 60


def _write(client: topics.Client, name: str) -> list[str]:
    """What is wrong with the answers to so many writes and reads of a topic's only writer."""
    wrong = []
    topic = client.topic(name)
    for number in range(1, WRITES + 1):
        written = topic.put({"n": number})
        if (written.topic, written.first_seq) != (name, number):
            wrong.append(f"write {number} of {name} was answered with {written}")
        page = topic.read(from_seq=number - 1)
        if page.topic != name or [record.data for record in page.records] != [{"n": number}]:
            wrong.append(f"read {number} of {name} was answered with {page}")
    return wrong


def test_parent_and_child_have_the_answers_to_their_own_requests(server: PrivateServer, name: str) -> None:
    client = topics.Client(server.url)
    for i in range(2):
        client.create(f"{name}-{i}")  # there is a connection now, which the fork copies
    ours, theirs = FORK.Pipe()

    def in_child() -> None:
        theirs.send(_write(client, f"{name}-0"))
        client.close()

    child = FORK.Process(target=in_child)
    child.start()
    wrong = _write(client, f"{name}-1")
    assert ours.poll(LATER_S)
    wrong += ours.recv()
    child.join(LATER_S)
    client.close()

    assert wrong == []
    assert child.exitcode == 0


class Kept:
    """A server that keeps its connections: what came on each, until its client ended it."""

    def __init__(self) -> None:
        self.came: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            self.came.append(b"")
            with connection:
                while found := connection.recv(65536):
                    self.came[-1] += found
                    if found.endswith(b"\r\n\r\n"):
                        connection.sendall(answer(200, b'{"status":"ok"}'))


def test_a_child_that_closes_leaves_the_parents_connection_alone() -> None:
    """It neither ends it nor writes on it, and its own closing is for good."""
    peer = Kept()
    client = topics.Client(peer.url)
    client.health()

    def in_child() -> None:
        client.close()
        with pytest.raises(topics.Rejected, match="the client is closed"):
            client.health()
        os._exit(7)

    child = FORK.Process(target=in_child)
    child.start()
    child.join(LATER_S)
    client.health()
    client.close()

    assert child.exitcode == 7
    assert [came.count(b"GET /v0/health") for came in peer.came] == [2]


def test_a_client_that_was_closed_stays_so_in_a_child() -> None:
    client = topics.Client("http://127.0.0.1:9")
    client.close()

    def in_child() -> None:
        with pytest.raises(topics.Rejected, match="the client is closed"):
            client.health()
        os._exit(7)

    child = FORK.Process(target=in_child)
    child.start()
    child.join(LATER_S)

    assert child.exitcode == 7
