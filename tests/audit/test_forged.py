"""Whatever a file says, with a right checksum, looking at it ends: well, in a refusal, or in violations (I-18).

Every field of every file that is decoded as a value is set to what no store writes. What is then opened, checked,
inspected, verified, backed up and restored must neither raise anything but our own errors nor take more memory than a
bound, which the operating system enforces meanwhile.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import resource
import sys
from contextlib import contextmanager, nullcontext, suppress

import msgspec
import pytest

import topics
from tests.support.sample_store import build, disk_of, files_of, write_out
from topics.audit.dump.dumping import dump
from topics.audit.fsck import Options, fsck
from topics.codec.manifest import MANIFEST_FILE, decode_manifest, encode_manifest
from topics.codec.primitives import checksum
from topics.codec.snapshot import decode_snapshot, encode_snapshot
from topics.engine import image
from topics.host.backup.live_backup import Backup, write_backup
from topics.host.backup.verifying import verify_backup
from topics.host.cold.ownership import NOTE_FILE
from topics.host.directory.layout import FORMAT_FILE
from topics.host.directory.owner import LOCK_NAME
from topics.host.system.memory import MemoryDisk
from topics.host.system.readonly import ReadOnlyDisk
from topics.kernel.errors import CannotOpen, Corrupt, TopicsError
from topics.kernel.limits import MIB
from topics.log.image import TopicImage
from topics.store.inline import carry_out
from topics.store.opened import StoreOptions
from topics.store.opening import open_store
from topics.store.restore import restore
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy

ROOM = 256 * MIB  # of address space, for what a try needs beside what is there already
TEBIBYTE = 1 << 40
EXTREMES = (
    0, 1, 2, -1, 2**31, 2**32 - 1, 2**32, 10**8, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1, 1.5, True, None,
    "", "x", "x" * 100_000, "\0", b"", b"\0", b"\xff" * 8, [], {}, [[]], [0] * 1000,
)  # fmt: skip
OPTIONS = StoreOptions(min_free_bytes=4096)


@contextmanager
def bounded():
    """No more address space than ROOM. Where the system does not bound it, only the errors are seen."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if sys.platform == "linux":
        used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def opened(files):
    return open_store(
        disk_of(files),
        ManualClock(),
        SeededEntropy(1),
        where="it",
        machine_restarted=True,
        confirm=lambda logs: None,
        options=OPTIONS,
    )


def backup_of(files):
    """The files of a backup of a store that is opened on these; none of one that is read-only."""
    store = opened(files)
    target = MemoryDisk(TEBIBYTE)
    if store.checkpointer is not None:

        def drain():
            for writer in store.writers:
                writer.drain()

        with Backup(store.checkpointer) as backup:
            carry_out(store.engine, backup.steps(), drain)
            write_backup(backup.contents(), target)
    return files_of(target)


def look_at(files):
    """What `fsck`, `topics.open` and `backup` do with a directory of these files."""
    with suppress(TopicsError):
        fsck(disk_of(files), where="it", options=Options(settled=True))
    with suppress(TopicsError):
        backup_of(files)


def verify(files):
    """What `verify` does with a backup of these files."""
    with suppress(TopicsError):
        disk = disk_of(files)
        verify_backup(disk, "it")
        fsck(disk, where="it", options=Options(settled=True))


def fields(value, path=()):
    """Every place in a value, containers too."""
    yield path
    if isinstance(value, list):
        for at, each in enumerate(value):
            yield from fields(each, (*path, at))
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from fields(each, (*path, key))


def altered(value, path, new):
    """The value with something else in one place."""
    if not path:
        return new
    items = value.items() if isinstance(value, dict) else enumerate(value)
    changed = {key: altered(each, path[1:], new) if key == path[0] else each for key, each in items}
    return changed if isinstance(value, dict) else list(changed.values())


def alterations(value, encode, *, share, seed):
    """Each field in turn set to each extreme, or a share of all that."""
    tries = [(path, new) for path in fields(value) for new in EXTREMES]
    if share < 1:
        tries = random.Random(seed).sample(tries, int(len(tries) * share))
    for path, new in tries:
        try:
            yield path, new, encode(altered(value, path, new))
        except (OverflowError, msgspec.MsgspecError, TypeError):
            continue  # nobody can write that


def swept(record_property, alter, attempt):
    count = 0
    with bounded():
        for path, new, files in alter:
            try:
                attempt(files)
            except Exception as error:
                raise AssertionError(f"{path} = {new!r:.40}") from error
            count += 1
    record_property("forged files", count)
    assert count > 0


@pytest.fixture(scope="module")
def sample():
    return build(records=8).files


@pytest.fixture(scope="module")
def backup(sample):
    return backup_of(sample)


def newest(files):
    return max(path for path in files if path.startswith("meta/"))


def with_snapshot(files, path):
    """How a snapshot's body becomes the files with it in this place, manifest and all."""
    number = decode_snapshot(files[path])[0]

    def encode(value):
        forged = {**files, path: encode_snapshot(number, msgspec.msgpack.encode(value))}
        return summed(forged) if MANIFEST_FILE in files else forged

    return encode


def summed(files):
    """A backup whose manifest has the sizes and checksums of the files as they are."""
    manifest = decode_manifest(files[MANIFEST_FILE])
    entries = [
        msgspec.structs.replace(file, size=len(files[file.path]), xxh3=f"{checksum(files[file.path]):016x}")
        for file in manifest.files
    ]
    return {**files, MANIFEST_FILE: encode_manifest(msgspec.structs.replace(manifest, files=entries))}


def with_json(files, path, end=b""):
    return lambda value: {**files, path: json.dumps(value).encode() + end}


def with_manifest(files):
    def encode(value):
        body = msgspec.json.encode(value)[:-1]
        return {**files, MANIFEST_FILE: b'%b,"xxh3":"%016x"}\n' % (body, checksum(body))}

    return encode


SHARES = [pytest.param(0.006, id="quick"), pytest.param(1, id="all", marks=pytest.mark.slow)]
MORE = [pytest.param(0.08, id="quick"), pytest.param(1, id="all", marks=pytest.mark.slow)]


@pytest.mark.invariant("I-18")
@pytest.mark.parametrize("share", SHARES)
def test_every_field_of_a_snapshot_may_say_anything(sample, share, record_property):
    path = newest(sample)
    value = msgspec.msgpack.decode(decode_snapshot(sample[path])[1])

    swept(record_property, alterations(value, with_snapshot(sample, path), share=share, seed=1), look_at)


@pytest.mark.invariant("I-18")
@pytest.mark.parametrize(("field", "new"), [("segments", []), ("base_seq", 2)])
def test_records_that_an_image_kills_or_passes_by_are_there_or_have_ended(
    sample, record_property, field, new
):
    """Found by the sweep of all: dead records without the segments they are in, a first seq without an end."""
    path = newest(sample)
    value = msgspec.msgpack.decode(decode_snapshot(sample[path])[1])
    at, encode = TopicImage.__struct_fields__.index(field), with_snapshot(sample, path)
    tries = [
        ((0, 4, i, at), new, encode(altered(value, (0, 4, i, at), new))) for i in range(len(value[0][4]))
    ]

    swept(record_property, tries, look_at)


@pytest.mark.invariant("I-18")
@pytest.mark.parametrize("share", SHARES)
def test_every_field_of_the_snapshot_of_a_backup_may_say_anything(backup, share, record_property):
    path = newest(backup)
    value = msgspec.msgpack.decode(decode_snapshot(backup[path])[1])

    swept(record_property, alterations(value, with_snapshot(backup, path), share=share, seed=2), verify)


@pytest.mark.invariant("I-18")
@pytest.mark.parametrize("share", SHARES)
def test_every_field_of_a_manifest_may_say_anything(backup, share, record_property):
    value = msgspec.json.decode(backup[MANIFEST_FILE])
    value.pop("xxh3")

    swept(record_property, alterations(value, with_manifest(backup), share=share, seed=3), verify)


@pytest.mark.invariant("I-18")
@pytest.mark.parametrize("share", MORE)
@pytest.mark.parametrize("path", [FORMAT_FILE, LOCK_NAME, NOTE_FILE])
def test_every_field_of_a_small_file_may_say_anything(sample, path, share, record_property):
    files = {
        NOTE_FILE: json.dumps({"format": 1, "owner": "0" * 32, "token": "0" * 32, "check": ""}).encode(),
        **sample,
    }
    value = json.loads(files[path])

    swept(record_property, alterations(value, with_json(files, path), share=share, seed=4), look_at)


@pytest.mark.parametrize("generation", [10**9, 2**32 - 1])
def test_a_generation_whose_directory_nobody_would_find_is_refused(generation):
    form = {FORMAT_FILE: json.dumps({"format": 1, "shards": 1, "generation": generation}).encode()}

    with pytest.raises(CannotOpen, match="not a FORMAT file"):
        opened(form)


# One forged value that fits the others.


def forged_count(files, count):
    """The newest snapshot counts so many records in the last segment of its first topic, consistently."""
    path = newest(files)
    number, body = decode_snapshot(files[path])
    snapshot = image.decode(body)
    topic = next(one for one in snapshot.state.topics if one.segments)
    last = topic.segments[-1]
    topic.segments[-1] = msgspec.structs.replace(last, last=last.first + count - 1, size=2**32 - 1)
    topic.stored_seq = topic.head_seq = last.first + count - 1
    topic.ceiling, topic.slots, topic.regions = topic.head_seq, [], []
    return {**files, path: encode_snapshot(number, image.encode(snapshot))}


@pytest.mark.invariant("I-18")
@pytest.mark.parametrize("count", [10**7, 10**8, 2**62])
def test_a_segment_counts_no_more_records_than_its_files_can_hold(sample, count):
    """10^8 took 10.6 GiB."""
    files = forged_count(sample, count)
    with bounded():
        report = fsck(disk_of(files), where="it", options=Options(settled=True))
        store = opened(files)  # with the older snapshot

    assert [one.file for one in report.errors if one.check == "snapshot"] == [newest(files)]
    assert any(newest(files) in warning for warning in store.warnings)


def test_as_many_records_as_files_show_and_a_million_may_be_missing(sample):
    """A removed directory is told record by record, and nothing else of the store suffers."""
    gone = {path: data for path, data in sample.items() if not path.startswith("topics/")}
    store = opened(gone)

    assert not store.warnings
    assert store.damages


@pytest.mark.invariant("I-18")
@pytest.mark.parametrize("depth", [100, 10_000, 1_000_000])
def test_a_snapshot_that_nests_deeply_is_refused(sample, depth):
    path = newest(sample)
    number, body = decode_snapshot(sample[path])
    at = body.index(b"\xa4type\xa3log") + 5  # the value of a config's first field
    nested = body[:at] + b"\x91" * depth + b"\xc0" + body[at + 4 :]
    files = {**sample, path: encode_snapshot(number, nested)}

    with bounded():
        look_at(files)


# Sizes that say nothing of what is there.


@pytest.fixture(scope="module")
def kinds(sample):
    """One file of each kind that a directory has."""
    chosen = {}
    for path in sorted(sample, reverse=True):
        chosen.setdefault((path.split("/")[0], path.rpartition(".")[2]), path)
    assert len(chosen) >= 8
    return [*chosen.values(), "wal/gen-0/shard-00/next.tmp"]


def enlarged(root, path):
    (root / path).touch()
    os.truncate(root / path, TEBIBYTE)


# Of a file of the log or of a segment more than a gibibyte is read, again and again.
LARGE = [pytest.param(False, id="quick"), pytest.param(True, id="large", marks=pytest.mark.slow)]


@pytest.mark.invariant("I-18")
@pytest.mark.parametrize("large", LARGE)
def test_a_hole_of_a_tebibyte_holds_up_nobody_whatever_file_it_is_in(
    sample, kinds, large, tmp_path, record_property
):
    chosen = [path for path in kinds if path.endswith((".log", ".data")) == large]
    for number, path in enumerate(chosen):
        root = tmp_path / str(number)
        write_out(sample, root)
        enlarged(root, path)
        with bounded():
            report = fsck(ReadOnlyDisk(root), where="it", options=Options(settled=True))
            shown = {item["what"] for item in dump(root / path)}
            with pytest.raises(CannotOpen) if path == FORMAT_FILE else nullcontext():
                topics.open(root).close()

        # What lies behind the data that counts is no damage: an append may have been broken off.
        assert path in [one.file for one in report.violations] or path.endswith((FORMAT_FILE, ".data")), path
        assert "DAMAGED" in shown, path
    record_property("forged files", len(chosen))


@pytest.mark.invariant("I-18")
@pytest.mark.parametrize("large", LARGE)
def test_a_hole_in_a_backup_holds_up_neither_verify_nor_restore(backup, large, tmp_path, record_property):
    paths = [file.path for file in decode_manifest(backup[MANIFEST_FILE]).files]
    kinds = {path.rpartition(".")[2].rpartition("/")[2]: path for path in [*paths, MANIFEST_FILE]}.values()
    chosen = [path for path in kinds if path.endswith((".log", ".data")) == large]
    for number, path in enumerate(chosen):
        root = tmp_path / str(number)
        write_out(backup, root)
        enlarged(root, path)
        with bounded():
            found = verify_backup(ReadOnlyDisk(root), "it").findings
            try:
                restored = restore(ReadOnlyDisk(root), tmp_path / f"{number}-restored")
            except Corrupt:
                restored = None

        assert path in [finding.file for finding in found]
        assert (restored is None) == (path == MANIFEST_FILE)  # the manifest says how much of each file counts
    record_property("forged files", len(chosen))
