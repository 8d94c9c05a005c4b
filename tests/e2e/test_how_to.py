"""docs/how-to is right: its programs and its commands run as they stand there, against a server where they need one."""

from __future__ import annotations

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
from typing import Self

import httpx
import httpx_sse
import pytest

import topics
from topics.pytest_plugin.server import Server

PAGES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "how-to"
BIN = pathlib.Path(sys.executable).parent
URL = "http://127.0.0.1:4000"


def blocks(page: str, language: str) -> list[str]:
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def ran(folder: pathlib.Path, *command: str | pathlib.Path) -> str:
    env = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=50, check=False, cwd=folder, env=env
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def said(folder: pathlib.Path, program: str) -> list[str]:
    return ran(folder, sys.executable, "-W", "error", "-c", program).splitlines()


# live-feed


class Application:
    """hypercorn over `feed.py`, on a free port that it is handed as a socket."""

    def __init__(self, folder: pathlib.Path, url: str) -> None:
        (program,) = blocks("live-feed", "python")
        (folder / "feed.py").write_text(program.replace(URL, url))
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            self.child = subprocess.Popen(
                [BIN / "hypercorn", "--bind", f"fd://{listener.fileno()}", "feed:app"],
                cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)}, pass_fds=[listener.fileno()],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.wait()

    def events(self, count: int, *, behind: str = "") -> list[httpx_sse.ServerSentEvent]:
        headers = {"Last-Event-ID": behind} if behind else {}
        with httpx_sse.connect_sse(httpx, "GET", f"{self.url}/feed", headers=headers, timeout=30) as source:
            coming = source.iter_sse()
            return [next(coming) for _ in range(count)]


def test_a_page_gets_everything_once_and_goes_on_where_it_was(
    topics_client: topics.Client, topics_server: Server, tmp_path: pathlib.Path
) -> None:
    quakes = topics_client.create("quakes", cap_records=2)
    topics_client.topic("secret").put("not for pages")
    quakes.put_many([{"data": {"mag": n}} for n in range(3)])
    with Application(tmp_path, topics_server.url) as application:
        first = application.events(4)
        assert httpx.post(f"{application.url}/quakes", json={"mag": 9}, timeout=30).json() == 4
        behind = application.events(1, behind=first[-1].id)
        foreign = application.events(1, behind='{"secret": {"from_seq": 0}}')
        topics_client.delete("quakes")
        topics_client.create("quakes").put({"mag": 1})
        anew = application.events(2, behind=first[-1].id)

    assert [(event.event, json.loads(event.data)) for event in first] == [
        ("lost", [1, 1, "cap"]), ("quake", {"mag": 1}), ("quake", {"mag": 2}), ("now", 3),
    ]  # fmt: skip
    assert [json.loads(event.data) for event in behind] == [{"mag": 9}]
    assert foreign[0].event == "lost"  # from the beginning, of its own topic
    assert [(event.event, json.loads(event.data)) for event in anew] == [
        ("lost", [1, 1, "recreated"]), ("quake", {"mag": 1}),
    ]  # fmt: skip


# import


def test_an_import_that_dies_goes_on_and_stores_each_line_once(tmp_path: pathlib.Path) -> None:
    load, names, _ = blocks("import", "python")
    lines = [json.dumps({"n": n}) for n in range(1250)]
    (tmp_path / "quakes.jsonl").write_text("\n".join([*lines[:1100], "broken", ""]))
    broken = subprocess.run(
        [sys.executable, "-c", load], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "JSONDecodeError" in broken.stderr
    (tmp_path / "quakes.jsonl").write_text("\n".join([*lines, ""]))

    assert said(tmp_path, load) == ["250"]
    assert said(tmp_path, load) == ["0"]
    with topics.open(tmp_path / "data") as store:
        assert [record.data["n"] for record in store.topic("quakes").records()] == list(range(1250))
    assert said(tmp_path, names) == ["2 0 2", "2 2 2"]


def test_a_copy_in_a_database_has_each_record_once(tmp_path: pathlib.Path) -> None:
    _, names, copy = blocks("import", "python")
    said(tmp_path, names)

    assert said(tmp_path, copy) == ["[(1, 'tea'), (2, 'salt')]"]
    with topics.open(tmp_path / "data") as store:
        store.topic("orders").put({"item": "flour"})
    assert said(tmp_path, copy) == ["[(1, 'tea'), (2, 'salt'), (3, 'flour')]"]


def test_the_command_stores_a_file_once(tmp_path: pathlib.Path) -> None:
    (tmp_path / "more.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    (console,) = blocks("import", "console")
    for line in console.splitlines():
        ran(tmp_path, "sh", "-c", line.removeprefix("$ "))

    with topics.open(tmp_path / "topics-data") as store:
        assert store.topic("imported").state().head_seq == 2


# backup


def test_a_backup_is_written_restored_and_looked_at(
    topics_client: topics.Client, topics_server: Server, tmp_path: pathlib.Path
) -> None:
    topics_client.create("orders", durability="fsync").put_many([{"data": n} for n in range(5)])
    nightly, behind, rehearsal = blocks("backup", "sh")
    place = tmp_path / "backups"
    place.mkdir()
    for day in range(10, 25):
        (place / f"2020-01-{day}").mkdir()

    ran(tmp_path, "sh", "-c", nightly.replace(URL, topics_server.url).replace("/backup/topics", str(place)))
    kept = sorted(path.name for path in place.iterdir())
    assert len(kept) == 14
    assert kept[0] == "2020-01-12"
    topics_client.topic("orders").put("behind the backup")
    command = behind.replace("/backup/topics/2026-11-27", str(place / kept[-1]))
    ran(tmp_path, "sh", "-c", command.replace("/var/lib/topics", str(topics_server.data)))
    with topics.open(tmp_path / "data-again") as store:
        assert store.topic("orders").state().head_seq == 6

    (place / kept[-1]).rename(tmp_path / "nightly")
    assert "record 3" in ran(tmp_path, "sh", "-e", "-c", rehearsal)


# sizing


@pytest.mark.timeout(120)
def test_a_machine_is_measured(tmp_path: pathlib.Path) -> None:
    (measured,) = blocks("sizing", "python")
    (doctor,) = blocks("sizing", "console")
    by_one, by_hundred = said(tmp_path, measured)

    assert re.fullmatch(r"by 1: [0-9.]+ µs a record", by_one)
    assert re.fullmatch(r"by 100: [0-9.]+ µs a record", by_hundred)
    assert "sync" in ran(tmp_path, "sh", "-c", doctor.removeprefix("$ "))
