"""Commands in pages that have no test of their own: who types them gets what the page says.

`topics` is `main` in this process, for each process of its own takes most of a second; what else a line has is the
shell's.
"""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

import topics
from tests.cli.conftest import Call
from tests.support.pages import ROOT, Block, blocks_of
from topics.cli.demo.private_server import PrivateServer

KAFKA = ROOT / "fuzz" / "corpus" / "kafka_json"

LINE = re.compile(
    r"(?:(?P<before>[^|]+) \| )?topics (?P<arguments>[^|>]*)(?: > (?P<file>\S+))?(?: \| (?P<behind>[^|]+))?"
)
Typed = Callable[..., str]
Patch = pytest.MonkeyPatch


def shell(line: str, given: bytes = b"") -> bytes:
    done = subprocess.run(["bash", "-c", line], input=given, capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, (line, done.stderr)
    return done.stdout


@pytest.fixture
def typed(call: Call) -> Typed:
    """Types lines, in the test's own directory; what they print, errors first. Each ends with `code`."""

    def type_them(*lines: str, code: int = 0) -> str:
        said = ""
        for typed_line in lines:
            line = re.sub(r"\s+# .*", "", typed_line)
            if not (parts := LINE.fullmatch(line)):
                said += shell(line).decode()
                continue
            before = shell(parts["before"]) if parts["before"] else b""
            answer = call(*shlex.split(parts["arguments"]), stdin=before)
            assert answer.code == code, (line, answer)
            out = shell(parts["behind"], answer.out) if parts["behind"] else answer.out
            if parts["file"]:
                pathlib.Path(parts["file"]).expanduser().write_bytes(out)
            said += answer.err + out.decode()
        return said

    return type_them


def block(page: str, beginning: str) -> Block:
    (found,) = (one for one in blocks_of(page) if one.text.startswith(beginning))
    return found


def looks_like(shown: list[str], said: str) -> None:
    """Line by line: `…`, numbers and units of bytes stand for others."""
    lines = said.splitlines()
    assert len(lines) == len(shown), (shown, said)
    for line, pattern in zip(lines, shown, strict=True):
        wild = re.sub(r"(?<=sha256:)[0-9a-f]+…|\d+(\\\.\d+)?(\\ kB)?|…", lambda _: ".+", re.escape(pattern))
        assert re.fullmatch(wild, line), (pattern, line)


# docs/export.md


def test_a_topic_is_written_to_each_kind_of_file_and_comes_back(typed: Typed) -> None:
    if not shutil.which("jq"):
        pytest.skip("there is no jq on this machine")
    with topics.open("topics-data") as store:
        store.create("quakes").put_many(
            [{"data": {"properties": {"mag": mag}}, "tag": tag} for mag, tag in ((6.4, "us"), (1.2, "nc"))]
        )
    said = typed(*block("docs/export.md", "$ topics export").commands)

    assert "6.4\n" in said
    assert "1.2\n" not in said
    with gzip.open("quakes.jsonl.gz", "rt") as lines:
        assert [json.loads(line)["$tag"] for line in lines] == ["us", "nc"]
    assert len(pathlib.Path("quakes.csv").read_text().splitlines()) == 3
    with topics.open("elsewhere") as store:
        again = store.topic("again")
        assert [record.data["properties"]["mag"] for record in again.records()] == [6.4, 1.2]
        assert again.state().config.durability == "fsync"


def test_what_kcat_and_rpk_print_is_appended(
    typed: Typed, tmp_path: pathlib.Path, monkeypatch: Patch
) -> None:
    """Files in the place of a broker: each program prints what it printed once."""
    for name in ("kcat", "rpk"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\ncat '{KAFKA / name}'\n")
        program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    typed(*block("docs/export.md", "$ kcat").commands)

    with topics.open("topics-data") as store:
        assert store.topic("orders").state().count == 4 + 3


# docs/keys.md


def test_keys_are_made_kept_and_given(typed: Typed, tmp_path: pathlib.Path) -> None:
    *made, serve = block("docs/keys.md", "$ topics key new").commands
    typed(*made)

    assert serve == "topics serve --data ./data --api-keys-file keys"
    looks_like(block("docs/keys.md", "sha256:").shown, (tmp_path / "keys").read_text())
    with PrivateServer(
        tmp_path / "data", tmp_path, settings={"api_keys_file": str(tmp_path / "keys")}
    ) as server:
        curl, ls = block("docs/keys.md", "curl -H").commands
        assert '"topics":[]' in typed(curl.replace("localhost:4000", server.url))
        assert "unauthorized" in typed(
            curl.replace("localhost:4000", server.url).replace("$(cat my.key)", "no")
        )
        typed(ls.replace("http://localhost:4000", server.url))
        node = [shutil.which("node") or "", "--no-warnings", "--experimental-websocket"]
        if (
            not node[0]
            or subprocess.run([*node, "-e", "0"], check=False, stderr=subprocess.DEVNULL).returncode
        ):
            pytest.skip("there is no node with a WebSocket on this machine")
        key = json.dumps((tmp_path / "my.key").read_text().strip())
        made_socket = block("docs/keys.md", "const coded").text.rstrip()
        program = f"const key = {key}\n{made_socket}.onopen = OPENED".replace(
            "OPENED", "({ target }) => { console.log(target.protocol); target.close() }"
        ).replace("ws://localhost:4000", server.url.replace("http", "ws"))
        done = subprocess.run([*node, "-e", program], capture_output=True, text=True, timeout=30, check=False)

    assert done.stdout == "topics.v0\n", done.stderr


# docs/operations.md


def test_a_server_says_where_it_is(tmp_path: pathlib.Path) -> None:
    shown = block("docs/operations.md", "$ topics serve")
    (command,) = shown.commands
    child = subprocess.Popen(
        [sys.executable, "-m", *command.split(), "--port", "0"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert child.stdout is not None
        said = [child.stdout.readline().rstrip() for _ in shown.shown]
    finally:
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=30)
    assert [
        re.sub(r":\d+(/?)$", r":4000\1", line).replace(str(tmp_path), "…") for line in said
    ] == shown.shown


def test_damage_is_named_and_repaired(typed: Typed) -> None:
    with topics.open("data") as store:
        for name in ("orders", "mails", "quakes"):
            store.create(name).put_many([{"data": {"n": n}} for n in range(1, 60)])
        store.checkpoint()
    file, *_ = sorted(pathlib.Path("data").rglob("*.data"))
    data = bytearray(file.read_bytes())
    data[data.index(b'{"n":5}')] ^= 1
    file.write_bytes(data)

    looked = block("docs/operations.md", "$ topics fsck --data")
    found = typed(*looked.commands, code=1)
    assert "'orders' seq 5: " in found
    looks_like(looked.shown, found)
    repaired = block("docs/operations.md", "$ topics fsck --repair")
    said = typed(*repaired.commands)
    assert "1 record cannot be had any more (seq 5)" in said
    looks_like(repaired.shown, said)


def test_a_backup_is_taken_verified_and_restored_up_to_a_moment(
    typed: Typed, server: PrivateServer, tmp_path: pathlib.Path, monkeypatch: Patch
) -> None:
    offline, served, verify, restore = block("docs/operations.md", "$ topics backup").commands
    with topics.open("data") as store:
        store.create("orders").put_many([{"data": n} for n in range(3)])
    typed(offline, verify)
    with topics.open("data") as store:
        store.topic("orders").put("behind the backup")
    assert "2026-11-21T14:30" in restore
    typed(restore.replace("2026-11-21T14:30", "2200-01-01T00:00"), code=1)  # the log ends before that moment
    with topics.open("data-again") as store:
        assert store.topic("orders").state().head_seq == 4

    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    typed(served.replace("http://127.0.0.1:4000", server.url), verify)


# docs/install.md


def test_the_shells_get_their_scripts(typed: Typed, tmp_path: pathlib.Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    places = [
        tmp_path / place
        for place in (
            ".local/share/bash-completion/completions/topics",
            ".zfunc/_topics",
            ".config/fish/completions/topics.fish",
        )
    ]
    typed(*block("docs/install.md", "$ mkdir -p").commands)

    assert all("topics" in place.read_text() for place in places)
    typed(f"bash -n {places[0]}")


# docs/queues.md, docs/routers.md, docs/schedules.md, docs/ledgerq.md


@pytest.fixture
def client(server: PrivateServer, monkeypatch: Patch) -> Iterator[topics.Client]:
    """At the server, where commands go now, too. It has no queue yet."""
    monkeypatch.setenv("TOPICS_URL", server.url)
    with topics.Client(server.url) as client:
        for row in client.list():
            client.delete(row.topic)
        yield client


def test_a_queue_is_used_by_curl_and_by_any_program(
    typed: Typed, client: topics.Client, server: PrivateServer, tmp_path: pathlib.Path
) -> None:
    *calls, ack = (
        line.replace("http://127.0.0.1:4000", server.url) for line in block("docs/queues.md", "curl").commands
    )
    claimed = json.loads([typed(f"{call} -sf") for call in calls][-1])
    (job,) = claimed["claimed"]
    assert json.loads(typed(f"{ack} -sf".replace("lease_…", job["lease_id"])))["acked"] == [1]

    send = tmp_path / "send-mail"
    send.write_text("#!/bin/sh\ncat >> sent\n")
    send.chmod(0o700)
    client.queue("mail").put({"to": "ben"})
    (work,) = block("docs/queues.md", "topics work").commands
    typed(work.replace(" --", " --until-empty --", 1))
    assert '"ben"' in (tmp_path / "sent").read_text()


def test_a_queue_is_looked_after(typed: Typed, client: topics.Client) -> None:
    client.create("mail", type="queue", max_deliveries=1, dead_letter="mail-failed")
    mail = client.queue("mail", node="w")
    mail.put("to nobody")
    job = mail.get()
    assert job is not None
    job.nack(reason="no such address", delay_ms=0)
    assert client.topic("mail-failed").read(from_seq=0, wait_ms=20_000).records  # it comes behind the answer
    assert "nobody" in typed(*block("docs/queues.md", "topics get mail-failed").commands)
    again = mail.get(timeout=20)
    assert again is not None
    assert again.data == "to nobody"
    again.ack()

    seq = mail.put("to ann").last_seq
    commands = block("docs/queues.md", "topics queue ls").commands
    assert "topics queue ack mail 17" in "\n".join(commands)
    said = typed(
        *(line.replace("17", str(seq)).replace("purge mail", "purge mail --yes") for line in commands)
    )
    assert "acked" in said
    assert mail.state().queue.ready == 0


@pytest.mark.parametrize(
    ("page", "beginning", "said"),
    [
        ("docs/routers.md", "topics router put", "quakes-us"),
        ("docs/schedules.md", "topics schedule put", "nightly"),
    ],
)
def test_routers_and_schedules_are_put_shown_and_removed(
    page: str, beginning: str, said: str, typed: Typed
) -> None:
    with topics.open("topics-data") as store:
        store.create("jobs", type="queue")
    assert said in typed(*block(page, beginning).commands)
    with topics.open("topics-data") as store:
        assert list(store.routers()) == list(store.schedules()) == []


def test_directories_of_ledgerq_come_and_go(typed: Typed) -> None:
    for name in ("mail", "mail-dlq"):
        shutil.copytree(ROOT / "tests" / "golden" / "ledgerq-release", name)
    typed(*(line.replace("/var/lib", ".") for line in block("docs/ledgerq.md", "topics import").commands))

    assert list(pathlib.Path("mail-out").iterdir())
    with topics.open("new-data") as store:
        assert store.topic("mail-failed").state().config.type == "log"
        assert store.topic("mail").state().config.dead_letter == "mail-failed"
