"""What LOCK says of its owner: any bytes are a line that fits again, or none; a restart is seen in it."""

import json

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from topics.host.directory.layout import Format
from topics.host.directory.owner import (
    BEGUN_MAX,
    RECORD_SIZE,
    RECORD_SIZE_BEFORE,
    URL_CHARS_MAX,
    OwnerRecord,
    same_boot,
)
from topics.host.system.boot import BOOT_ID_CHARS_MAX
from topics.kernel.limits import U32_MAX, U64_MAX, WAL_SHARDS_MAX
from topics.testing.simdisk import SimDisk

RECORD = OwnerRecord(pid=4711, boot_id="5e4f8a1c-boot", device=66, inode=1234567)


def test_a_line_of_an_earlier_version_over_one_of_this_is_read():
    """It writes its 256 bytes and leaves what is behind them."""
    line = json.dumps({"pid": 3, "boot_id": "boot-1", "device": 1, "inode": 2}).encode()
    data = line.ljust(RECORD_SIZE_BEFORE - 1) + b"\n" + RECORD.encode()[RECORD_SIZE_BEFORE:]

    assert OwnerRecord.decode(data) == OwnerRecord(pid=3, boot_id="boot-1", device=1, inode=2)


def test_a_record_has_one_size_and_comes_back():
    long = attrs.evolve(
        RECORD, boot_id="x" * BOOT_ID_CHARS_MAX, pid=U32_MAX, device=U64_MAX, inode=U64_MAX,
        begun=((U32_MAX, WAL_SHARDS_MAX),) * BEGUN_MAX, mount=U64_MAX, url="u" * URL_CHARS_MAX,
    )  # fmt: skip
    for record in (RECORD, long, attrs.evolve(RECORD, boot_id=None)):
        assert len(record.encode()) == RECORD_SIZE
        assert OwnerRecord.decode(record.encode()) == record


@pytest.mark.parametrize("name", ["pid", "boot_id", "device", "inode", "mount", "url"])
@pytest.mark.parametrize(
    "value", ["true", "1.5", "-1", "1" + "0" * 20, r'"\\"', r'"\""', '""', '"x' + "y" * 200 + '"', "[]", "{}"]
)
def test_a_record_with_a_wrong_value_is_none(name, value):
    good = attrs.evolve(RECORD, mount=77, url="http://h:1").encode().decode()
    fields = {
        "pid": "4711", "boot_id": '"5e4f8a1c-boot"', "device": "66", "inode": "1234567", "mount": "77", "url": '"http://h:1"',
    }  # fmt: skip
    bad = good.replace(f'"{name}": {fields[name]}', f'"{name}": {value}')

    assert bad != good
    assert OwnerRecord.decode(bad.encode()) is None


_NUMBERS = st.sampled_from([0, 1, U32_MAX, U64_MAX]) | st.integers() | st.integers(0, 10**180)
_TEXTS = st.none() | st.text(max_size=BOOT_ID_CHARS_MAX + 1) | st.text('x"\\', max_size=BOOT_ID_CHARS_MAX)
_LOGS = st.lists(
    st.lists(st.sampled_from([1, U32_MAX, WAL_SHARDS_MAX]) | st.integers(), max_size=3), max_size=4
)
_LINES = st.fixed_dictionaries(
    {"pid": _NUMBERS, "boot_id": _TEXTS, "device": _NUMBERS, "inode": _NUMBERS},
    optional={"begun": _LOGS, "mount": _NUMBERS, "url": _TEXTS},
).map(lambda line: json.dumps(line).encode())


@given(_LINES | st.binary(max_size=RECORD_SIZE))
@example(b'{"pid": 1, "boot_id": null, "device": 1' + b"0" * 179 + b', "inode": 1}')
@example(b'{"pid": 1, "boot_id": "' + rb"\"" * BOOT_ID_CHARS_MAX + b'", "device": 1, "inode": 1}')
def test_whatever_is_in_lock_is_no_record_or_one_that_fits_its_line_again(data):
    """The next owner writes the line anew with its own pid."""
    found = OwnerRecord.decode(data)
    if found is not None:
        anew = attrs.evolve(found, pid=U32_MAX).begin([Format(WAL_SHARDS_MAX, U32_MAX - n) for n in range(3)])
        assert len(anew.encode()) == RECORD_SIZE
        assert OwnerRecord.decode(anew.encode()) == anew


@pytest.mark.parametrize(
    "value",
    ["null", "{}", "[1]", "[[1]]", "[[1, 2, 3]]", "[[-1, 1]]", "[[0, 0]]", "[[0, 65]]", "[[4294967296, 1]]",
     "[[0, true]]", "[[0, 1.0]]", "[[0, 1], [1, 1], [2, 1], [3, 1], [4, 1]]"],
)  # fmt: skip
def test_a_record_that_names_logs_which_cannot_be_is_none(value):
    good = RECORD.begin([Format(2, 3)]).encode().decode()
    bad = good.replace('"begun": [[3, 2]]', f'"begun": {value}')

    assert bad != good
    assert OwnerRecord.decode(bad.encode()) is None


def test_one_wrong_bit_names_no_log_that_there_never_was_and_no_other_server():
    """The log would be missed: the store would be read-only, and a repair would take its records for lost."""
    record = attrs.evolve(RECORD, url="http://[::1]:4000").begin([Format(2, 3)])
    line, logs = record.encode(), record.begun
    for bit in range(len(line) * 8):
        turned = bytearray(line)
        turned[bit // 8] ^= 1 << bit % 8
        found = OwnerRecord.decode(bytes(turned))

        assert found is None or found.begun in ((), logs)
        assert found is None or found.url in (None, record.url)


@pytest.mark.rule("T4.26")
def test_only_the_same_boot_mount_device_and_inode_are_the_same():
    record = attrs.evolve(RECORD, mount=77)
    same = {"boot_id": RECORD.boot_id, "device": RECORD.device, "inode": RECORD.inode, "mount": 77}

    assert same_boot(record, **same)
    for change in (
        {"boot_id": "other"},
        {"boot_id": None},
        {"device": 1},
        {"inode": 1},
        {"mount": 78},
        {"mount": None},
    ):
        assert not same_boot(record, **{**same, **change})
    assert not same_boot(None, **same)
    assert not same_boot(attrs.evolve(record, boot_id=None), **{**same, "boot_id": None})
    assert not same_boot(attrs.evolve(record, mount=None), **{**same, "mount": None})


def test_the_simulated_disk_can_run_the_same_logic():
    disk = SimDisk()
    disk.create("LOCK", RECORD_SIZE)
    record = OwnerRecord(
        pid=1, boot_id=disk.boot_id, device=disk.device, inode=disk.inode("LOCK"), mount=disk.mount
    )
    disk.write("LOCK", 0, [record.encode()])
    disk.sync_data("LOCK")
    disk.sync_dir("")

    def restarted() -> bool:
        found = OwnerRecord.decode(disk.read("LOCK", 0, RECORD_SIZE))
        return not same_boot(
            found, boot_id=disk.boot_id, device=disk.device, inode=disk.inode("LOCK"), mount=disk.mount
        )

    disk.process_death()
    assert not restarted()
    disk.power_loss()
    assert restarted()
