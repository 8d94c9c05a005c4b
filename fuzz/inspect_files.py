"""`topics inspect` and the scans of fsck on any bytes: what is wrong is shown, never raised.

The first byte chooses the kind of file, the rest are its bytes.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from topics.audit.dump import dumping
from topics.audit.scan.rows import SegmentTask, WalTask
from topics.audit.scan.segmentscan import scan_segment
from topics.audit.scan.walscan import look_of, row_of
from topics.engine.recovery.judge import judge
from topics.host.system.memory import MemoryDisk

TOPIC = 1
DIRECTORY = f"topics/{TOPIC:016x}"
STEM = f"{DIRECTORY}/seg-{1:020d}"
FILES = (
    "wal-00000000000000000001.log", f"{STEM}.data", f"{STEM}.idx", f"{STEM}.col", f"{STEM}.del", "snapshot.0001.bin",
    "LOCK", "FORMAT", "CURRENT", "BACKUP.json", "COLD",
)  # fmt: skip
ORDINARY = {kind: dumping._dumper(Path(name).name) for kind, name in enumerate(FILES)}


def check(data: bytes) -> None:
    """Each item is JSON; a scan gives a row."""
    if not data:
        return
    kind, body = data[0] % len(FILES), data[1:]
    for item in ORDINARY[kind](body, Path(FILES[kind])):
        assert item["what"]
        msgspec.json.encode(item)
    if kind == 0:
        row = row_of(WalTask(generation=0, shard=0, first_frame=1, file=FILES[0]), body)
        judge([look_of(row)], same_boot=False)
    elif kind in (1, 2, 3, 4):
        _scan(kind, body)


def _scan(kind: int, body: bytes) -> None:
    """A segment of which one file is these bytes, and `.data` if none else was given is empty."""
    disk = MemoryDisk(1 << 30)
    disk.make_dir(DIRECTORY)
    for number in {1, kind}:
        disk.create(FILES[number], 0)
        disk.write(FILES[number], 0, [body if number == kind else b""])
    size = len(body) if kind == 1 else 0
    task = SegmentTask(topic_id=TOPIC, first=1, last=20, size=size, sealed=True, compare_from=3)
    row = scan_segment(disk, task)
    assert row is not None
    assert row.records + sum(last - first + 1 for first, last in (*row.damaged, *row.missing)) >= 20


def reseal(data: bytes) -> bytes:
    """The bytes with the checksums of what may be in them made right."""
    import segment_data
    import segment_idx
    import wal_scan

    if not data:
        return data
    kind = data[0] % len(FILES)
    module = {0: wal_scan, 1: segment_data, 2: segment_idx}.get(kind)
    return data if module is None else data[:1] + module.reseal(data[1:])
