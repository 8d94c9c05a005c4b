"""Every command at a server: the same answers as on a directory, and errors that name the URL."""

from __future__ import annotations

import json
import pathlib
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import topics
from tests.support.embedded import wait_until
from topics.cli.demo.private_server import PrivateServer
from topics.kernel.limits import MIB

Call = Callable[..., Any]
Spawn = Callable[..., "subprocess.Popen[bytes]"]

OF_THE_MOMENT = {"seconds", "durable_seq", "$ts", "last_write_ts", "last_read_ts", "effective_priority"}
LINES = b"".join(b'{"n": %d,  "mag": %d.50}\n' % (n, n) for n in range(20))
# As typed, T a topic, and standard input.
SCRIPT: list[tuple[str, bytes]] = [
    ("create T cap_records=15 ttl_ms=1d --json", b""),
    ("create T", b""),
    ("configure T compression=zstd --json", b""),
    ("put T --tag a --node me --json", LINES),
    ("put T --tag-field k --key-field k --batch 2 --json", b'{"k": "x"}\n{"k": "yy"}\n{"k": "y"}\n'),
    ("put T --idempotency-key key --json", b"1\n2\n"),
    ("put T --idempotency-key key --json", b"1\n2\n"),
    ("put T --format text --json", b"hello\nworld\n"),
    ("put T", b"1\n{]\n2\n"),
    ("put T --durability fsync", b"1\n"),
    ("get T --json --account", b""),
    ("get T --match a --limit 2 --json", b""),
    ('get T --match ["tag","Glob","y*"] --json', b""),
    ("get T --from 18 --node me --json --account", b""),
    ("get T --since 1h --json", b""),
    ("get T --match *a", b""),
    ("get nope", b""),
    ("state T --json", b""),
    ("tail T --no-follow -n 3 --json", b""),
    ("tail T --no-follow --from 0 --json", b""),
    ("delete T --match a --json", b""),
    ("delete T", b""),
    ("delete T --before 24 --json", b""),
    ("configure T --replace --json", b""),
    ("configure T shiny=1", b""),
    ("rm T --if-empty --yes", b""),
    ("rm T", b""),
    ("rm T nope --yes", b""),
    ("rm T --yes --json", b""),
    ("state T", b""),
]


def shown(answer: Any, topic: str) -> tuple[int, list[Any], str]:
    """Code, output without what time decides, and the error."""
    lines = []
    for line in answer.out.decode().replace(topic, "T").splitlines():
        value = json.loads(line) if line.startswith("{") else re.sub(r"in [\d.]+ s\b", "in N s", line)
        if isinstance(value, dict):
            value = {name: one for name, one in value.items() if name not in OF_THE_MOMENT}
        lines.append(value)
    return (
        answer.code,
        lines,
        answer.err.replace(topic, "T").removeprefix("topics: made the data directory d\n"),
    )


@pytest.mark.rule("O2.18")
def test_a_session_at_a_server_reads_as_one_on_a_directory(call: Call, server: PrivateServer) -> None:
    with topics.Client(server.url) as client:  # as empty as the directory, whichever test was here before
        for row in client.list():
            client.delete(row.topic)
    for command, given in SCRIPT:
        here = call(*command.replace("T", "session").split(), "--data", "d", stdin=given)
        there = call("--url", server.url, *command.replace("T", "session").split(), stdin=given)

        code, out, err = shown(there, "session")
        assert (code, out, err.replace(server.url, "d")) == shown(here, "session"), command


@pytest.mark.rule("O2.18")
def test_a_list_and_the_version_are_the_servers(call: Call, server: PrivateServer, monkeypatch: Any) -> None:
    monkeypatch.setenv("TOPICS_URL", server.url)
    call("put", "listed", stdin=b"1\n2\n")

    (row,) = [row for row in call("ls", "--json").lines if row["topic"] == "listed"]
    assert (row["count"], row["head_seq"], row["durable"]) == (2, 2, False)
    table = call("ls", "--prefix", "listed").text.splitlines()
    assert table[0].split() == ["topic", "type", "class", "records", "bytes", "earliest", "head"]
    assert table[-1].split()[:3] == ["listed", "log", "disk"]
    assert f"no topics whose name begins with 'zz' in {server.url}" in call("ls", "--prefix", "zz").text
    assert f"topics {topics.__version__} at {server.url}" in call("version", "--url", server.url).text
    shown = {row["url"]["source"] for row in call("config", "show", "--json").lines}
    assert shown == {"TOPICS_URL"}


def test_a_server_and_a_directory_at_once_are_refused_naming_both(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, server: PrivateServer
) -> None:
    both = call("--url", server.url, "--data", "d", "ls")
    assert both.code == 2
    assert f"--url names the server {server.url} and --data the directory d" in both.err
    monkeypatch.setenv("TOPICS_URL", server.url)
    call("put", "t", "--data", "d", stdin=b'"here"\n')
    assert (tmp_path / "d").exists()  # a flag is stronger than a variable
    monkeypatch.setenv("TOPICS_DATA_DIR", "d")
    assert call("ls").code == 2
    assert call("ls", "--url", server.url).code == 0
    assert [row["topic"] for row in call("ls", "--data", "d", "--json").lines] == ["t"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.mark.rule("O2.24")
@pytest.mark.parametrize("command", [("ls",), ("put", "t"), ("version",)])
def test_a_server_that_is_not_there_is_said_in_one_line(call: Call, command: tuple[str, ...]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    answer = call(*command, "--url", url, stdin=b"1\n")

    assert (answer.code, answer.out.replace(b"topics", b"")[:1] == b"{") == (1, False)
    assert answer.err.splitlines() == [
        f"topics: {url}: nobody listens there; start a server (topics serve), or check host and port"
    ]


@pytest.mark.rule("O2.24")
@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("127.0.0.1:4000", 2, "give it with its scheme: http://127.0.0.1:4000, or https://"),
        ("ftp://x", 2, "a server's URL"),
        ("http://x?key=1", 2, "a server's URL"),
    ],
)
def test_a_url_that_is_none(call: Call, url: str, code: int, words: str) -> None:
    answer = call("ls", "--url", url)
    assert answer.code == code
    assert words in answer.err
    assert len(answer.err.splitlines()) == 1


def test_a_name_the_server_does_not_know_and_a_page_that_is_no_topics_server(
    call: Call, server: PrivateServer
) -> None:
    answer = call("ls", "--url", f"{server.url}/elsewhere")
    assert answer.code == 1
    assert f"{server.url}/elsewhere: " in answer.err
    assert len(answer.err.splitlines()) == 1


@pytest.mark.rule("O2.24")
def test_a_name_the_server_does_not_answer_to_says_what_to_do(call: Call, server: PrivateServer) -> None:
    url = f"http://127.1:{server.port}"  # resolves to the server, and is none of its names
    for command in (("ls",), ("put", "t")):
        answer = call(*command, "--url", url, stdin=b"1\n")
        assert (answer.code, len(answer.err.splitlines())) == (1, 1)
        assert answer.err.startswith(f"topics: {url}: host: ")
        assert "allowed_origins" in answer.err


def test_a_key_file_is_read_and_never_shown(
    call: Call, server: PrivateServer, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "key").write_text("s3cret")
    assert call("ls", "--url", server.url, "--api-key-file", "key").code == 0
    assert "s3cret" not in call("config", "show", "--api-key-file", "key").text
    missing = call("ls", "--url", server.url, "--api-key-file", "nope")
    assert (missing.code, "nope cannot be read" in missing.err) == (2, True)


@pytest.mark.rule("O2.18")
def test_a_key_in_the_environment_is_no_setting_and_never_shown(call: Call, monkeypatch: Any) -> None:
    monkeypatch.setenv("TOPICS_API_KEY", "s3cret")
    answer = call("config", "show")
    assert answer.code == 0
    assert "s3cret" not in answer.text


@pytest.fixture
def tail(spawn: Spawn, server: PrivateServer) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    children = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        children.append(
            spawn("tail", "--url", server.url, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.communicate()


def next_line(child: subprocess.Popen[bytes]) -> Any:
    assert child.stdout is not None
    return json.loads(child.stdout.readline())


@pytest.mark.rule("O2.5", "O2.10")
def test_tail_that_is_killed_goes_on_where_its_consumer_stands(tail: Any, server: PrivateServer) -> None:
    with topics.Client(server.url) as client:
        topic = client.create("consumed", exist_ok=True)
        consumer = topic.consumer("c")
        topic.put_many([{"data": number} for number in range(3)])
        consumer.seek()
        child = tail("consumed", "--consumer", "c", "--json")
        for number in range(3, 6):
            assert next_line(child)["data"] == number - 3
            topic.put(number)
        assert [next_line(child)["data"] for _ in range(3)] == [3, 4, 5]
        assert wait_until(lambda: consumer.position().from_seq == 6)
        child.kill()
        topic.put(6)
        child = tail("consumed", "--consumer", "c", "--json")
        assert next_line(child)["data"] == 6
        assert wait_until(lambda: consumer.position().from_seq == 7)

        client.delete("consumed")
        client.topic("consumed").put("new")
        _, err = child.communicate(timeout=20)
    assert b"topic 'consumed' is of epoch 2: consumer 'c' of epoch 1 is gone" in err
    assert child.returncode == 1


@pytest.mark.rule("O2.5")
@pytest.mark.rule("O2.18")
def test_tail_follows_until_ctrl_c(call: Call, tail: Any, server: PrivateServer) -> None:
    with topics.Client(server.url) as client:
        topic = client.create("followed", cap_records=3)
        topic.put_many([{"data": n} for n in range(5)])
        child = tail("followed", "--from", "0", "--json")
        first = [next_line(child) for _ in range(4)]
        assert first[0]["tombstone"]["gap_to"] == 2
        assert [line["data"] for line in first[1:]] == [2, 3, 4]
        topic.put("later")
        assert next_line(child)["data"] == "later"

        client.delete("followed")
        client.topic("followed").put("new")
        assert next_line(child)["tombstone"]["reason"] == "recreated"
        assert next_line(child)["data"] == "new"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=20)

    assert (child.returncode, out) == (130, b"")
    assert b"was deleted and created again (epoch 2)" in err
    assert b"Traceback" not in err


def test_tail_of_several_topics_names_each_and_now_begins_at_the_head(
    tail: Any, server: PrivateServer
) -> None:
    with topics.Client(server.url) as client:
        for name in ("one", "two"):
            client.create(name).put("old")
        backlog = tail("one", "two", "--json")
        assert [next_line(backlog)["data"] for _ in range(2)] == ["old", "old"]
        fresh = tail("one", "two", "--now", "--json")
        writer = Ticking(client, "two")
        with writer:
            line = next_line(fresh)
    assert line["topic"] == "two"
    assert line["data"] >= 0


class Ticking:
    """Writes on until it is left: whoever begins at the head gets something, whenever that is."""

    def __init__(self, client: topics.Client, name: str) -> None:
        self._topic = client.topic(name)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        for n in range(10_000):
            if self._done.is_set():
                return
            self._topic.put(n)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._done.set()
        self._thread.join()


@pytest.mark.rule("O2.5")
def test_a_tombstone_stands_out_and_is_never_skipped(call: Call, server: PrivateServer) -> None:
    with topics.Client(server.url) as client:
        client.create("losing", cap_records=1).put_many([{"data": n} for n in range(3)])

    answer = call("tail", "losing", "--no-follow", "--url", server.url, "--match", "nothing")
    assert answer.text.startswith("\u2205 LOST seqs 1\u20132 [cap] 2 records")
    assert call("tail", "losing", "-f", "--no-follow", "--url", server.url).code == 2


def test_a_put_goes_on_over_a_restart(call: Call, tmp_path: pathlib.Path, spawn: Spawn) -> None:
    with PrivateServer(tmp_path / "data", tmp_path) as own:
        child = spawn(
            "put", "t", "--json", "--url", own.url,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert child.stdin is not None
        child.stdin.write(b"1\n")
        child.stdin.flush()
        with topics.Client(own.url) as client:
            while client.config("t") is None:
                assert child.poll() is None
        own.kill()
        child.stdin.write(b"2\n")
        child.stdin.flush()
        own.start()
        out, err = child.communicate(b"3\n", timeout=30)

        assert (child.returncode, err) == (0, b"")
        assert json.loads(out)["count"] == 3
        assert [line["data"] for line in call("get", "t", "--json", "--url", own.url).lines] == [1, 2, 3]


@pytest.mark.rule("O2.6")
def test_tail_goes_on_over_a_killed_server_and_says_so(tmp_path: pathlib.Path, spawn: Spawn) -> None:
    with PrivateServer(tmp_path / "data", tmp_path) as own, topics.Client(own.url) as client:
        topic = client.create("t", durability="fsync")
        topic.put(1)
        child = spawn("tail", "t", "--url", own.url, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            assert next_line(child)["data"] == 1
            topic.put(2)
            assert next_line(child)["data"] == 2  # so the watch stands
            own.kill()
            assert child.stderr is not None
            away = child.stderr.readline().decode()
            own.start()
            topic.put(3)
            assert next_line(child)["data"] == 3
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=20)
        finally:
            child.kill()
            child.communicate()
    assert away.startswith(f"topics: {own.url}: ")
    assert away.endswith("; trying again until it is there\n")
    assert (child.returncode, out, err.decode()) == (130, b"", f"topics: {own.url} is there again\n")


def test_tail_ends_quietly_when_nobody_reads_it(tail: Any, server: PrivateServer) -> None:
    with topics.Client(server.url) as client:
        topic = client.create("unread")
        topic.put(1)
        child = tail("unread", "--json")
        assert next_line(child)["data"] == 1
        assert child.stdout is not None
        child.stdout.close()
        topic.put(2)
        assert child.wait(20) == 0
        assert child.stderr is not None
        assert child.stderr.read() == b""


def test_what_a_record_may_have_is_for_the_server_to_say(call: Call, tmp_path: pathlib.Path) -> None:
    with PrivateServer(tmp_path / "s", tmp_path, settings={"max_record_bytes": str(2 * MIB)}) as server:
        fits = call("put", "t", "--format", "text", "--url", server.url, stdin=b"x" * (2 * MIB - 2))
        above = call("put", "t", "--format", "text", "--url", server.url, stdin=b"x" * 5 * MIB)

    assert (fits.code, fits.err) == (0, "")
    assert above.code == 1
    assert f"and a record may have {2 * MIB}; nothing is stored" in above.err
