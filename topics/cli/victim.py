"""The process that the demo kills: several threads that write as fast as they are acknowledged.

Each thread reports an acknowledged write on standard output before it begins the next one, in one `write` to a pipe,
short enough to be atomic. What it writes follows from (round, writer, number), so whoever holds the same rows can
compare every record with what it must be.

    python -m topics.cli.victim DIRECTORY ROWS ROUND
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Final

import attrs

READY: Final = b"ready\n"
PARTS_MAX: Final = 4


@attrs.frozen
class Writer:
    """One thread: its number, and the topic it writes, in which class."""

    number: int
    topic: str
    durability: str


WRITERS: Final = (
    *(Writer(number, "payments", "fsync") for number in range(4)),
    *(Writer(number, "clicks", "disk") for number in range(4, 6)),
)


def parts_of(number: int) -> int:
    """How many records the write of that number has."""
    return 1 + number % PARTS_MAX


def payload(rows: list[bytes], *, life: int, writer: int, number: int, part: int) -> bytes:
    """The record `part` of a write: who wrote it, around a row of the real input."""
    row = rows[(life * 7919 + writer * 104_729 + number * PARTS_MAX + part) % len(rows)]
    return b'{"round":%d,"writer":%d,"write":%d,"part":%d,"row":%b}' % (life, writer, number, part, row)


def main(directory: str, rows_file: str, life: int) -> None:
    import topics

    rows = Path(rows_file).read_bytes().splitlines()
    store = topics.open(directory)
    for writer in WRITERS:
        store.create(writer.topic, durability=writer.durability)
    os.write(1, READY)
    threads = [threading.Thread(target=_write, args=(store, rows, life, writer)) for writer in WRITERS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _write(store: object, rows: list[bytes], life: int, writer: Writer) -> None:
    import topics

    assert isinstance(store, topics.Store)
    topic = store.topic(writer.topic)
    number = 0
    while True:
        records = [
            topics.Raw(payload(rows, life=life, writer=writer.number, number=number, part=part))
            for part in range(parts_of(number))
        ]
        written = topic.put_many(records)
        try:
            os.write(
                1, b"%d %d %d %d\n" % (writer.number, number, written.first_seq or 0, written.last_seq or 0)
            )
        except BrokenPipeError:
            return  # nobody listens any more; the other threads will find out too
        number += 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
