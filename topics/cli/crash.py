"""Killing a writer in the middle of its work, and comparing what is there with what it was promised.

The parent trusts nothing but the pipe: a write is acknowledged once its line has arrived. After the kill it opens the
directory itself, reads every topic from the beginning, and looks for each acknowledged record at its seq, byte by byte.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import msgspec

import topics
from topics.cli.failure import Failed
from topics.cli.victim import READY, WRITERS, parts_of, payload

if TYPE_CHECKING:
    from topics.calls.blocking import TopicStore

START_S: Final = 20.0
LIFE_S: Final = 2.0  # a slow disk gets no further than this before the kill


@attrs.frozen
class Ack:
    """A write that was acknowledged, and where."""

    life: int
    writer: int
    number: int
    first_seq: int
    last_seq: int


@attrs.define
class Finding:
    """What is in one topic after the crashes, beside what was acknowledged for it."""

    topic: str
    durability: str
    acked_writes: int = 0
    acked_records: int = 0
    intact_records: int = 0
    head_seq: int = 0
    delivered: int = 0
    holes: int = 0
    foreign: int = 0
    torn_writes: int = 0
    unacked_writes: int = 0
    accounted: int = 0
    account: dict[str, int] = attrs.field(factory=dict)


def live_and_die(
    directory: Path, rows: Path, life: int, *, acks: int, watch: Callable[[int], None]
) -> list[Ack]:
    """Start the writers, kill them with SIGKILL once `acks` writes are acknowledged; every acknowledgement there was.

    Raises:
        Failed: the process ended by itself, or never began.
    """
    with tempfile.TemporaryFile() as errors, _child(directory, rows, life, errors.fileno()) as child:
        assert child.stdout is not None
        pipe = child.stdout.fileno()
        text = b""
        lines = 0
        deadline = time.monotonic() + START_S
        while lines <= acks and time.monotonic() < deadline:
            chunk = os.read(pipe, 65_536)
            if not chunk:
                child.wait()
                errors.seek(0)
                said = errors.read().decode(errors="replace").strip().splitlines()[-1:]
                raise Failed(f"the writing process ended by itself ({child.returncode}): {' '.join(said)}")
            if not text:
                deadline = time.monotonic() + LIFE_S
            text += chunk
            lines = text.count(b"\n")
            watch(min(lines, acks))
        child.kill()
        while chunk := os.read(pipe, 65_536):  # what it had reported before it died
            text += chunk
    return _parse_acks(text, life)


@contextmanager
def _child(directory: Path, rows: Path, life: int, errors: int) -> Iterator[subprocess.Popen[bytes]]:
    home = str(Path(topics.__file__).resolve().parent.parent)
    search = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "topics.cli.victim", str(directory), str(rows), str(life)]
    child = subprocess.Popen(  # noqa: S603 -- our own interpreter and module
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=os.environ | {"PYTHONPATH": search},
    )
    with child:
        try:
            yield child
        finally:
            child.kill()


def _parse_acks(text: bytes, life: int) -> list[Ack]:
    assert text.startswith(READY), text[:80]
    assert text.endswith(b"\n"), "a write to a pipe this short is atomic"
    return [Ack(life, *map(int, line.split())) for line in text[len(READY) :].splitlines()]


def examine(store: TopicStore, rows: list[bytes], acks: list[Ack]) -> list[Finding]:
    """Every topic the victim wrote, read from its beginning and compared."""
    findings = []
    for topic, durability in sorted({(writer.topic, writer.durability) for writer in WRITERS}, reverse=True):
        findings.append(_examine_topic(store, rows, acks, Finding(topic, durability)))
    return findings


def _examine_topic(store: TopicStore, rows: list[bytes], acks: list[Ack], found: Finding) -> Finding:
    own = {writer.number for writer in WRITERS if writer.topic == found.topic}
    stored: dict[int, bytes] = {}
    cursor, is_read = 0, False
    while not is_read:
        page = store.topic(found.topic).read(from_seq=cursor, limit=store.limits.read_limit, account=True)
        assert page.account is not None
        for name, count in attrs.asdict(page.account).items():
            found.account[name] = found.account.get(name, 0) + count
        found.holes += page.tombstone is not None
        stored.update((record.seq, record.raw) for record in page.records)
        cursor, is_read = page.next_from_seq, page.caught_up
    found.head_seq = store.topic(found.topic).state().head_seq
    found.delivered = len(stored)
    found.holes += sum(seq not in stored for seq in range(1, found.head_seq + 1))
    found.accounted = sum(found.account.values())
    for ack in acks:
        if ack.writer in own:
            found.acked_writes += 1
            _examine_ack(ack, rows, stored, found)
    _examine_writes(rows, stored, found, {(ack.life, ack.writer, ack.number) for ack in acks})
    return found


def _examine_ack(ack: Ack, rows: list[bytes], stored: dict[int, bytes], found: Finding) -> None:
    parts = parts_of(ack.number)
    found.acked_records += parts
    if ack.last_seq - ack.first_seq + 1 != parts:
        return
    for part in range(parts):
        promised = payload(rows, life=ack.life, writer=ack.writer, number=ack.number, part=part)
        found.intact_records += stored.get(ack.first_seq + part) == promised


def _examine_writes(
    rows: list[bytes], stored: dict[int, bytes], found: Finding, acked: set[tuple[int, int, int]]
) -> None:
    """Acknowledged or not: each write is there whole, in order, or not at all; and nothing else is there."""
    writes: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for seq, raw in stored.items():
        who = msgspec.json.decode(raw)
        life, writer, number, part = who["round"], who["writer"], who["write"], who["part"]
        found.foreign += raw != payload(rows, life=life, writer=writer, number=number, part=part)
        writes.setdefault((life, writer, number), []).append((seq, part))
    for write, places in writes.items():
        first_seq = places[0][0]
        whole = [(first_seq + part, part) for part in range(parts_of(write[2]))]
        found.torn_writes += places != whole
        found.unacked_writes += write not in acked
