"""A whole server in a process of its own: how it begins, how it ends, and what it says on the way."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import h2.config
import h2.connection
import h2.settings
import pytest

import topics
from tests.server.process import CERTIFICATES, Process, trusting
from topics.cli.main import main
from topics.codec.log.layout import pack_frame
from topics.engine.recovery.judge import examine_log_file
from topics.host.directory.owner import read_owner
from topics.kernel.errors import CannotOpen
from topics.log.regions import WalFileId

DRAIN_S = 1.0
PLANTED = str(pathlib.Path(__file__).parent / "planted.py")


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[object]:
    """`start(*arguments, **env)`: a server on any free port, gone behind the test."""
    with ExitStack() as stack:

        def start_it(*arguments: object, **how: object) -> Process:
            return stack.enter_context(Process("--port", 0, *arguments, cwd=tmp_path, **how))

        yield start_it


class TestBeginning:
    @pytest.mark.rule("O2.2", "O2.3")
    def test_it_says_where_it_is_and_writes_its_port(self, start, tmp_path):
        (tmp_path / "port").write_text("1\n")  # of an earlier server
        server = start("--data", "data", "--port-file", "port", forked=False).ready()
        port = int((tmp_path / "port").read_text())

        assert port == server.port
        assert server.ask("GET", "/v0/ready")[0] == 200
        assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "port"]
        code, out, noise = server.end(signal.SIGTERM)
        assert (code, noise) == (0, "")
        assert [line.split() for line in out.splitlines()] == [
            ["topics", topics.__version__],
            ["URL", f"http://127.0.0.1:{port}"],
            ["dashboard", f"http://127.0.0.1:{port}/"],
            ["data", str(tmp_path / "data"), "(new)"],
        ]

    @pytest.mark.rule("T4.11", "H1.35")
    @pytest.mark.parametrize(
        ("end", "why", "how"),
        [
            (
                pack_frame(20, 0, 1, 0, 0, b"?"),
                "was written by a newer topics",
                "use the topics that wrote it",
            ),
            (pack_frame(1, 0, 1, 9, 0, b"?"), "is damaged", "topics fsck --repair"),
        ],
        ids=["newer", "damaged"],
    )
    def test_of_a_store_that_is_not_written_it_says_why_and_what_to_do(self, start, tmp_path, end, why, how):
        with topics.open(tmp_path / "data") as store:
            store.topic("t").put(1)
        (log,) = tmp_path.glob("data/wal/**/wal-*.log")
        content = log.read_bytes()
        at = examine_log_file(WalFileId(0, 0, 1), content).end
        log.write_bytes(content[:at] + end + content[at + len(end) :])
        server = start("--data", "data").ready()
        said = next(event["why"] for event in server.events if event["event"] == "storage.read_only")
        assert why in said
        assert how in said
        asked = ("topics/t", {"records": [{"data": 1}]}), ("admin/checkpoint", {}), ("admin/backup", None)
        for path, body in asked:
            status, fields = server.ask("POST", f"/v0/{path}", body)
            error = fields["error"]
            assert (status, error["code"], error["message"]) == (503, "storage_read_only", said)

    @pytest.mark.parametrize(
        ("arguments", "url"),
        [
            ((), "http://127.0.0.1"),
            (("--host", "0.0.0.0", "--set", "allow_insecure_no_auth=1"), "http://127.0.0.1"),
            (
                ("--certfile", CERTIFICATES / "one.pem", "--keyfile", CERTIFICATES / "one.key"),
                "https://127.0.0.1",
            ),
        ],
    )
    def test_its_url_is_in_lock_for_who_finds_the_directory_in_use(self, start, tmp_path, arguments, url):
        server = start("--data", "data", *arguments).ready()
        with pytest.raises(
            CannotOpen, match=f"in use by process {server.pid}, a server at {url}:"
        ) as refused:
            topics.open(tmp_path / "data")
        owner = read_owner(tmp_path / "data")

        assert (owner.pid, owner.url) == (server.pid, f"{url}:{server.port}")
        assert refused.value.detail["owner_url"] == owner.url
        server.stop()

    @pytest.mark.rule("O2.2")
    def test_in_memory_it_leaves_no_file(self, start, tmp_path):
        server = start("--memory", "--shards", 2).ready()
        server.append("t", 1, 2)

        assert server.read("t") == [1, 2]
        server.stop()
        assert list(tmp_path.iterdir()) == []

    def test_what_it_wrote_is_there_for_the_next_and_for_the_embedded_store(self, start, tmp_path):
        server = start("--data", "data", "--shards", 3).ready()
        server.append("t", 1)
        server.stop()
        server = start("--data", "data").ready()
        server.append("t", 2)
        assert server.read("t") == [1, 2]
        server.stop()

        with topics.open(tmp_path / "data") as store:
            assert [record.data for record in store.topic("t").read().records] == [1, 2]
            assert not store.cuts
        assert (tmp_path / "data" / "wal" / "gen-0" / "shard-02").is_dir()

    def test_it_says_that_it_asks_for_no_keys_and_how_it_shares_the_interpreter(self, start):
        server = start("--memory", "--set", "switch_interval_us=250").ready()
        told = {event["event"]: event for event in server.events}

        assert told["auth.off"]["level"] == "warning"
        assert told["server.listening"]["switch_interval_us"] == 250
        assert told["server.listening"]["pid"] == server.pid

    def test_a_log_level_holds_from_the_start(self, start, tmp_path):
        server = start("--memory", "--port-file", "port", TOPICS_LOG_LEVEL="error")
        assert server.child.stdout.readline().startswith("topics")
        code, _, noise = server.end(signal.SIGTERM)

        assert (code, noise, server.events) == (0, "", [])

    def test_a_directory_that_it_has_made_is_called_new(self, start, tmp_path):
        for new in (" (new)", ""):
            server = start("--data", "a/b")
            told = [server.child.stdout.readline() for _ in range(4)]
            assert told[-1] == f"  data       {tmp_path / 'a' / 'b'}{new}\n"
            server.end(signal.SIGTERM)

    def test_who_is_shown_its_url_is_answered(self, start, tmp_path):
        with topics.open(tmp_path / "data") as store:
            for n in range(50):
                store.topic(f"t{n}").put_many([{"data": "x" * 1000}] * 100)
        server = start("--data", tmp_path / "data", "--port", 0)
        head, url, *_ = (server.child.stdout.readline() for _ in range(4))
        assert (head.split()[0], url.split()[0]) == ("topics", "URL")
        address = url.split()[1].removeprefix("http://")
        connection = http.client.HTTPConnection(address, timeout=20)
        connection.request("GET", "/v0/ready")

        assert connection.getresponse().status == 200
        connection.close()

    @pytest.mark.rule("H11.5")
    def test_what_the_port_counts_is_in_the_metrics(self, start):
        server = start("--memory").ready()
        for _ in range(3):
            assert server.ask("GET", "/v0/health")[0] == 200
        with server.connect() as asker:
            asker.sendall(b"GET /v0/metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            page = b"".join(iter(lambda: asker.recv(1 << 16), b"")).decode()
        server.stop()

        found = dict(
            line.split(" ") for line in page.splitlines() if line.startswith("topics_") and "{" not in line
        )
        assert float(found["topics_connections_accepted_total"]) == 4
        for name in ("connections_refused", "tls_handshakes_failed", "connection_bugs", "connections_forced"):
            assert float(found[f"topics_{name}_total"]) == 0

    @pytest.mark.rule("A4.6")
    @pytest.mark.skipif(not pathlib.Path("/proc/self/limits").exists(), reason="reads /proc")
    def test_the_soft_limit_of_open_files_becomes_the_hard_one(self, start):
        server = start("--memory").ready()
        (line,) = (
            line
            for line in pathlib.Path(f"/proc/{server.pid}/limits").read_text().splitlines()
            if line.startswith("Max open files")
        )

        assert line.split()[3] == line.split()[4]

    def test_what_a_start_found_that_is_no_damage_is_a_warning(self, start, tmp_path):
        with topics.open(tmp_path / "data") as store:
            store.topic("t").put(1)
            store.checkpoint()
            store.topic("t").put(2)
            store.checkpoint()
        newest = max((tmp_path / "data" / "meta").glob("snapshot.*.bin"))
        newest.write_bytes(newest.read_bytes()[:-1])
        server = start("--data", "data").ready()

        warned = [event["why"] for event in server.events if event["event"] == "storage.warning"]
        assert len(warned) == 1
        assert newest.name in warned[0]
        assert server.read("t") == [1, 2]
        server.stop()

    def test_a_disk_that_is_low_is_told_before_anybody_writes(self, start):
        server = start("--data", "data", "--set", f"min_free_bytes={2**62}").ready()
        low = server.until("disk.low")

        assert (low["level"], low["shard"]) == ("warning", 0)
        assert "writes are refused: data/wal/gen-0/shard-00 has not enough disk space" in low["why"]
        assert "lower min_free_bytes" in low["why"]
        server.stop()


class TestRefusingToStart:
    def refused(self, server: Process) -> tuple[int, str]:
        """The exit code, and the one line that is no event."""
        code, out, noise = server.end()
        assert out == ""
        (line,) = noise.splitlines()
        return code, line

    @pytest.mark.rule("O2.24")
    def test_a_port_in_use(self, start):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            code, line = self.refused(start("--port", port, "--memory"))

        assert code == 1
        assert line == (
            f"topics: port {port} of 127.0.0.1 is in use: stop who uses it, or give another --port (0 = any free)"
        )

    @pytest.mark.parametrize(
        "arguments",
        [("--port", "TAKEN"), ("--certfile", "c.pem", "--keyfile", "k.pem"), ("--api-keys-file", "no.keys")],
    )
    def test_a_refused_start_makes_no_directory(self, start, tmp_path, arguments):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.refused(start("--data", "a/b", *(port if one == "TAKEN" else one for one in arguments)))

        assert not (tmp_path / "a").exists()

    @pytest.mark.rule("O2.20")
    def test_a_directory_another_server_owns_on_the_same_port(self, start):
        owner = start("--data", "data").ready()
        _, line = self.refused(start("--data", "data", "--port", owner.port))

        assert f"data is in use by process {owner.pid}, a server at " in line

    @pytest.mark.rule("O2.20")
    def test_a_directory_another_server_owns(self, start):
        owner = start("--data", "data").ready()
        code, line = self.refused(start("--data", "data"))

        assert code == 1
        assert f"data is in use by process {owner.pid}" in line
        assert owner.ask("GET", "/v0/ready")[0] == 200

    def test_the_file_with_the_port_of_who_owns_the_directory_stays(self, start, tmp_path):
        owner = start("--data", "data", "--port-file", "port").ready()
        self.refused(start("--data", "data", "--port-file", "port"))

        assert (tmp_path / "port").read_text() == f"{owner.port}\n"

    def test_a_foreign_directory_is_not_touched(self, start, tmp_path):
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "letter.txt").write_text("dear")
        code, line = self.refused(start("--data", "data"))

        assert code == 2
        assert "data is no topics directory: it has no FORMAT, but holds letter.txt" in line
        assert [path.name for path in (tmp_path / "data").iterdir()] == ["letter.txt"]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--host", "0.0.0.0"), "host: '0.0.0.0' can be reached from other machines"),
            (("--port", "65536"), "--port: '65536' is not allowed; give a whole number from 0 to 65535"),
            (("--shards", "0"), "--shards: '0' is not allowed; give a whole number from 1 to 64"),
            (("--certfile", "c.pem"), "keyfile: must be given too, because certfile is"),
            (("--certfile", "c.pem", "--keyfile", "k.pem"), "certfile: c.pem cannot be read: No such file"),
            (
                ("--certfile", CERTIFICATES / "one.pem", "--keyfile", CERTIFICATES / "two.key"),
                "two.key is not the key of",
            ),
            (
                ("--certfile", CERTIFICATES / "one.pem", "--keyfile", CERTIFICATES / "locked.key"),
                "locked.key is encrypted; give a key without a passphrase",
            ),
            (
                ("--certfile", CERTIFICATES / "one.key", "--keyfile", CERTIFICATES / "one.key"),
                "are no certificate and key in PEM",
            ),
            (("--data", "here"), "--memory keeps no data directory"),
            (("--url", "http://127.0.0.1:4000"), "a server serves a directory, not another server"),
            (("--set", "url=http://127.0.0.1:4000"), "leave out --url"),
            (("--set", "zebra=1"), "there is no setting 'zebra'"),
        ],
    )  # fmt: skip
    @pytest.mark.rule("O3.4")
    def test_a_bad_wish_is_one_line(self, tmp_path, monkeypatch, capfd, arguments, message):
        """Told before anything begins, so no process is begun for each."""
        monkeypatch.chdir(tmp_path)
        for name in [name for name in os.environ if name.startswith("TOPICS_")]:
            monkeypatch.delenv(name)
        code = main(["serve", "--memory", "--port", "0", *map(str, arguments)])

        (line,) = capfd.readouterr().err.splitlines()
        assert code == 2
        assert line.startswith("topics: ")
        assert message in line

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--host", "no.such.host.invalid", "--set", "allow_insecure_no_auth=1"), "no address and no name"),
            (("--host", "192.0.2.1", "--set", "allow_insecure_no_auth=1"), "is no address of this machine"),
            (("--port-file", "no/where"), "--port-file: no/where cannot be written: No such file"),
        ],
    )  # fmt: skip
    def test_what_the_machine_refuses_is_one_line(self, start, arguments, message):
        code, line = self.refused(start("--memory", *arguments))

        assert code == 1
        assert line.startswith("topics: ")
        assert message in line


class TestSignals:
    @pytest.mark.rule("O3.8")
    def test_sighup_reads_the_level_of_the_log_again(self, start, tmp_path):
        settings = tmp_path / "topics.toml"
        settings.write_text('log_level = "info"\n')
        server = start("--memory").ready()
        settings.write_text('log_level = "loud"\n')
        server.signal(signal.SIGHUP)
        assert "log_level: 'loud' is not allowed" in server.until("settings.not_reloaded")["error"]
        later = ["min_free_bytes", "checkpoint_wal_bytes", "max_record_bytes", "drain_ms"]
        wished = "".join(f"{name} = 2097152\n" for name in later)
        settings.write_text(f'log_level = "debug"\nurl = "http://127.0.0.1:1"\n{wished}')
        server.signal(signal.SIGHUP)
        assert server.until("settings.need_a_restart")["settings"] == later
        assert server.until("settings.reloaded")["log_level"] == "debug"
        settings.write_text('log_level = "error"\n')
        server.signal(signal.SIGHUP)
        assert server.append("t", 1)["head_seq"] == 1
        code, _, _ = server.end(signal.SIGTERM)

        assert code == 0
        assert server.events[-1]["event"] in ("settings.reloaded", "signal.received")

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_ends_it_and_nothing_is_left_open(self, start, number, tmp_path):
        server = start("--data", "data").ready()
        server.append("t", 1)
        with server.connect() as idle:
            code, _, noise = server.end(number)
            assert idle.recv(1) == b""

        assert (code, noise) == (0, "")
        assert server.events[-1]["event"] == "server.ended"
        assert server.events[-1]["forced"] == 0
        with topics.open(tmp_path / "data") as store:
            assert not store.cuts

    @pytest.mark.rule("O3.7", "A4.5")
    def test_it_ends_with_a_snapshot_of_what_was_written(self, start, tmp_path):
        server = start("--data", "data").ready()
        server.append("t", 1)
        server.stop()
        assert [event["number"] for event in server.events if event["event"] == "snapshot.kept"] == [1]
        again = start("--data", "data").ready()
        assert again.read("t") == [1]
        again.append("t", 2)
        again.stop()

        names = sorted(path.name for path in (tmp_path / "data" / "meta").iterdir())
        assert names == ["snapshot.0001.bin", "snapshot.0002.bin"]
        with topics.open(tmp_path / "data") as store:
            assert not store.warnings
            assert [record.data for record in store.topic("t").read().records] == [1, 2]

    @pytest.mark.rule("A4.3")
    def test_a_second_signal_waits_for_nobody(self, start):
        server = start("--memory", TOPICS_DRAIN_MS="3600000").ready()
        with server.connect() as half:
            half.sendall(b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n")
            assert server.ask("GET", "/v0/health")[0] == 200
            server.signal(signal.SIGTERM)
            server.until("drain.begun")
            code, _, _ = server.end(signal.SIGINT)

        assert code == 0
        assert server.events[-1]["forced"] == 1


class TestDraining:
    @pytest.mark.rule("A4.3")
    @pytest.mark.rule("A4.4")
    @pytest.mark.rule("O3.5")
    def test_two_bad_clients_and_writers_end_within_the_bound_with_all_that_was_acknowledged(
        self, start, tmp_path
    ):
        server = start("--data", "data", TOPICS_DRAIN_MS=str(int(DRAIN_S * 1000))).ready()
        big = "x" * 100_000
        for _ in range(10):
            server.append("big", *[big] * 10)
        acknowledged: list[list[int]] = []
        enough = threading.Event()
        writers = [threading.Thread(target=write, args=(server, acknowledged, n, enough)) for n in range(4)]
        with server.connect() as deaf, server.connect() as half:
            ask = json.dumps({"limit": 1000, "max_batch_bytes": 8 << 20}).encode()
            head = (
                b"POST /v0/topics/big/diff HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            )
            for _ in range(10):  # answers of 8 MB, and nobody reads one
                deaf.sendall(head + b"Content-Length: %d\r\n\r\n" % len(ask) + ask)
            half.sendall(head + b"Content-Length: 1000\r\n\r\n{")
            for writer in writers:
                writer.start()
            assert enough.wait(20)
            before = time.monotonic()
            server.signal(signal.SIGTERM)
            server.until("drain.begun")
            with pytest.raises(OSError, match="refused"):
                server.connect()
            code, _, noise = server.end()
            took_s = time.monotonic() - before
        for writer in writers:
            writer.join(20)

        assert (code, noise) == (0, "")
        assert took_s < DRAIN_S + 0.5  # the interpreter has to end too
        assert server.events[-1]["forced"] == 2
        with topics.open(tmp_path / "data") as store:
            assert not store.cuts
            kept: list[list[int]] = []
            while page := store.topic("t").read(from_seq=len(kept), limit=1000).records:
                kept += [record.data for record in page]
        assert all(each in kept for each in acknowledged)
        assert len(acknowledged) >= 50

    @pytest.mark.rule("A4.3")
    @pytest.mark.parametrize("speech", ["http/1.1 over tls", "h2", "h2 over tls", "tls, no handshake"])
    def test_no_speech_holds_a_drain_up(self, start, speech):
        """A peer that reads one byte of large answers and then no more."""
        secure = "tls" in speech
        files = (
            ("--certfile", CERTIFICATES / "one.pem", "--keyfile", CERTIFICATES / "one.key") if secure else ()
        )
        context = trusting("one") if secure else None
        server = start("--memory", *files, TOPICS_DRAIN_MS=str(int(DRAIN_S * 1000))).ready()
        for _ in range(10):
            records = [{"data": "x" * 100_000}] * 10
            assert server.ask("POST", "/v0/topics/big", {"records": records}, context=context)[0] in (
                200,
                201,
            )
        ask = json.dumps({"limit": 1000, "max_batch_bytes": 8 << 20}).encode()
        with ExitStack() as stack:
            deaf = stack.enter_context(server.connect())
            if "no handshake" not in speech:
                if context is not None:
                    context.set_alpn_protocols([speech.partition(" ")[0]])
                    deaf = stack.enter_context(context.wrap_socket(deaf, server_hostname="localhost"))
                if speech.startswith("h2"):
                    deaf.sendall(h2_requests(ask, 5))
                else:
                    head = b"POST /v0/topics/big/diff HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    deaf.sendall((head + b"Content-Length: %d\r\n\r\n%b" % (len(ask), ask)) * 5)
                seen = b""
                while len(seen) < 1000:
                    seen += deaf.recv(1000)
            before = time.monotonic()
            code, _, noise = server.end(signal.SIGTERM)
            took_s = time.monotonic() - before

        assert (code, noise) == (0, "")
        assert took_s < DRAIN_S + 0.5
        assert server.events[-1]["forced"] == (0 if "no handshake" in speech else 1)

    def test_a_long_poll_is_answered_when_the_drain_begins(self, start):
        server = start("--memory", TOPICS_DRAIN_MS="30000").ready()
        server.append("t", 1)
        body = json.dumps({"from_seq": 1, "wait_ms": 30000}).encode()
        with server.connect() as poll:
            poll.sendall(
                b"POST /v0/topics/t/diff HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            while server.ask("GET", "/v0/topics/t?touch=false")[1]["last_read_ts"] is None:
                pass  # until the server has read for it
            code, _, _ = server.end(signal.SIGTERM)
            answer = poll.makefile("rb").read()

        assert code == 0
        assert answer.startswith(b"HTTP/1.1 200")
        assert server.events[-1]["forced"] == 0


def h2_requests(body: bytes, count: int) -> bytes:
    """What a client sends that asks so often for large answers, and leaves them room to come."""
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    client.local_settings[h2.settings.SettingCodes.INITIAL_WINDOW_SIZE] = 1 << 28
    client.initiate_connection()
    client.increment_flow_control_window(1 << 28)
    for _ in range(count):
        stream = client.get_next_available_stream_id()
        fields = {
            ":method": "POST", ":path": "/v0/topics/big/diff", ":scheme": "http", ":authority": "localhost",
            "content-type": "application/json", "content-length": str(len(body)),
        }  # fmt: skip
        client.send_headers(stream, list(fields.items()))
        client.send_data(stream, body, end_stream=True)
    return bytes(client.data_to_send())


def write(server: Process, acknowledged: list[list[int]], me: int, enough: threading.Event) -> None:
    """Append until the server is gone or refuses."""
    n = 0
    while True:
        try:
            status, _ = server.ask("POST", "/v0/topics/t", {"records": [{"data": [me, n]}]})
        except (OSError, ValueError, EOFError):
            return
        if status not in (200, 201):
            assert status == 503
            return
        acknowledged.append([me, n])
        n += 1
        if len(acknowledged) >= 50:
            enough.set()


class TestRecovering:
    def recovering(self, tmp_path):
        return Process("recovery", "port", cwd=tmp_path, entry=[PLANTED])

    @pytest.mark.rule("O2.2")
    def test_until_the_log_is_recovered_it_answers_not_ready_and_says_how_far_it_is(self, tmp_path):
        with self.recovering(tmp_path) as server:
            server.until("recovery.waits")
            status, fields = server.ask("POST", "/v0/topics/t", {"records": [{"data": 2}]})
            assert (status, fields["error"]["code"]) == (503, "not_ready")
            assert fields["error"]["detail"] == {"replay_progress": 0.25}
            assert server.ask("GET", "/v0/ready")[0] == 503
            assert server.ask("GET", "/v0/health")[0] == 200
            assert not (tmp_path / "port").exists()
            server.go_on()
            server.ready()
            assert (tmp_path / "port").read_text() == str(server.port)
            assert server.ask("GET", "/v0/ready")[0] == 200
            server.append("t", 1)
            server.stop()

    def test_asked_to_stop_it_does_not_wait_for_the_recovery(self, tmp_path):
        with self.recovering(tmp_path) as server:
            server.until("recovery.waits")
            code, _, noise = server.end(signal.SIGTERM)

        assert (code, noise) == (0, "")
        assert not (tmp_path / "port").exists()

    def test_a_recovery_that_fails_ends_the_process(self, tmp_path):
        with self.recovering(tmp_path) as server:
            server.until("recovery.waits")
            server.go_on("fail")
            code, _, noise = server.end()

        assert code == 1
        assert "Planted: in the recovery" in noise


class TestFailing:
    @pytest.mark.rule("A4.1")
    def test_an_exception_in_storage_ends_the_process(self, tmp_path):
        with Process("storage", "port", cwd=tmp_path, entry=[PLANTED]) as server:
            server.ready()
            server.append("t", "fine")
            with server.connect() as caller:
                body = b'{"records":[{"data":"planted"}]}'
                caller.sendall(
                    b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
                )
                code, _, noise = server.end()

        assert code == 1
        assert "Planted: written to the disk" in noise


class TestSettings:
    """What the settings say reaches the planes."""

    def raw(self, server: Process, request: bytes) -> bytes:
        with server.connect() as connection:
            connection.sendall(request)
            return connection.makefile("rb").read()

    @pytest.mark.rule("O3.1")
    def test_the_limits_of_the_edge_are_settings(self, start, tmp_path):
        (tmp_path / "topics.toml").write_text(
            "max_head_bytes = 2048\nmax_head_fields = 5\nmax_body_bytes = 1000\nhead_timeout_ms = 200\n"
            'idle_timeout_ms = 300\nallowed_origins = ["https://a.example"]\nauto_create = false\n'
        )
        server = start("--memory").ready()
        get = b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\n"
        for path in (b"/v0/health", b"/"):
            ask = b"GET %b HTTP/1.1\r\nHost: localhost\r\n" % path
            assert b" 431 " in self.raw(server, ask + b"X: %b\r\n\r\n" % (b"x" * 2048))
            assert b" 431 " in self.raw(server, ask + b"X: x\r\n" * 5 + b"\r\n")
        assert b" 408 " in self.raw(server, get)
        assert self.raw(server, get + b"\r\n").startswith(b"HTTP/1.1 200")  # and its end, after 300 ms
        assert b" 200 " in self.raw(server, get + b"Origin: https://a.example\r\nConnection: close\r\n\r\n")
        assert b" 403 " in self.raw(server, get + b"Origin: https://b.example\r\nConnection: close\r\n\r\n")
        assert b" 413 " in self.raw(
            server,
            b"POST /v0/topics/t HTTP/1.1\r\nHost: a.example\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1001\r\nConnection: close\r\n\r\n",
        )
        status, fields = server.ask("POST", "/v0/topics/t", {"records": [{"data": 1}]})
        assert (status, fields["error"]["code"]) == (404, "topic_not_found")
        server.stop()
