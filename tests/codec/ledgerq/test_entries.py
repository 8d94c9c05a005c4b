"""Segments of ledgerq: entries of both dialects as they were written, and damage left out and told with its place."""

from __future__ import annotations

import pathlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.codec.ledgerq.crc import CASTAGNOLI, IEEE
from topics.codec.ledgerq.encode import encode_entry, encode_index
from topics.codec.ledgerq.entries import ID_STEP_MAX, BrokenEntry, LedgerqEntry, decode_segment, is_release
from topics.codec.ledgerq.layout import ENTRY_HEAD, RELEASE, SEED, EntryType, Level
from topics.codec.ledgerq.position import Position, decode_position, encode_position
from topics.codec.primitives import U32
from topics.kernel.errors import Corrupt

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "ledgerq-release"
RELEASE_SEGMENT = (GOLDEN / "00000000000000000001.log").read_bytes()
TS = 1_795_190_038_898_971_471
ENTRIES = [
    LedgerqEntry(type=EntryType.DATA, id=1, timestamp_ns=TS, payload=b"one"),
    LedgerqEntry(type=EntryType.DATA, id=2, timestamp_ns=TS, payload=b"", headers={"ü": "ß", "": ""},
        expires_ns=TS + 5),
    LedgerqEntry(type=EntryType.DATA, id=5, timestamp_ns=TS, payload=b"\x1f\x8b", priority=Level.HIGH,
        is_compressed=True),
]  # fmt: skip


def placed(entries):
    """The entries with the offsets at which they lie one behind another."""
    at, found = 0, []
    for entry in entries:
        found.append(
            LedgerqEntry(**{name: getattr(entry, name) for name in entry.__struct_fields__} | {"offset": at})
        )
        at += len(encode_entry(entry))
    return found


def written(entries=ENTRIES):
    return b"".join(map(encode_entry, entries))


def sealed(body):
    """An entry of the seed's dialect, whatever it says."""
    return body + U32.pack(zlib.crc32(body))


def head(*, size, kind=1, flags=0, number=1):
    return ENTRY_HEAD.pack(size - 4, kind, flags, number, TS)


@pytest.mark.parametrize(
    ("crc", "sum_"), [(IEEE, 0xCBF43926), (CASTAGNOLI, 0xE3069283)], ids=["ieee", "castagnoli"]
)
def test_checksums_are_those_of_the_standards(crc, sum_):
    """Both give what every catalogue of CRCs says of 123456789."""
    assert crc(b"123456789") == sum_


@given(st.binary(max_size=50))
def test_a_checksum_is_the_same_at_any_length(data):
    """Words and what is left behind them."""
    assert IEEE(data) == zlib.crc32(data)


def test_what_is_encoded_decodes_to_the_same():
    """Every field comes back, and none of them that is absent."""
    assert list(decode_segment(written(), SEED)) == placed(ENTRIES)


def test_a_segment_of_the_release_decodes_whole():
    """All 420 entries, in order of their ids, without a flaw."""
    found = list(decode_segment(RELEASE_SEGMENT, RELEASE))

    assert is_release(RELEASE_SEGMENT)
    assert [entry.id for entry in found] == list(range(1, 421))
    assert {type(entry) for entry in found} == {LedgerqEntry}


def test_a_flipped_bit_costs_one_entry():
    """What lies behind it is found by its length, and its place is told."""
    data = bytearray(written())
    first = len(encode_entry(ENTRIES[0]))
    data[first + 30] ^= 1

    assert list(decode_segment(bytes(data), SEED)) == [
        placed(ENTRIES)[0],
        BrokenEntry(first, first + len(encode_entry(ENTRIES[1])), "the checksum is wrong"),
        placed(ENTRIES)[2],
    ]


@pytest.mark.parametrize("length", [0, 7, 60, 0xFFFFFFFF])
def test_a_broken_length_costs_one_entry(length):
    """Behind it the next entry is searched for."""
    data = bytearray(written())
    data[:4] = U32.pack(length)
    flaw, *rest = decode_segment(bytes(data), SEED)

    assert isinstance(flaw, BrokenEntry)
    assert (flaw.offset, flaw.stop) == (0, len(encode_entry(ENTRIES[0])))
    assert rest == placed(ENTRIES)[1:]


def test_a_cut_off_end_is_told():
    """The entry that a crash cut off is a flaw up to the end of the file."""
    data = written()[:-1]
    *whole, flaw = decode_segment(data, SEED)

    assert whole == placed(ENTRIES)[:2]
    assert isinstance(flaw, BrokenEntry)
    assert flaw.stop == len(data)


def test_a_damaged_header_of_the_release_costs_nothing_but_a_flaw():
    """Entries behind it are read all the same."""
    data = bytearray(RELEASE_SEGMENT)
    data[9] ^= 1
    flaw, *rest = decode_segment(bytes(data), RELEASE)

    assert flaw == BrokenEntry(0, 64, "the header's checksum is wrong")
    assert len(rest) == 420


def test_zeros_behind_the_releases_checksum_are_looked_at():
    """They are part of the entry: other bytes there are damage."""
    data = bytearray(RELEASE_SEGMENT)
    data[109] = 1

    assert next(decode_segment(bytes(data), RELEASE)) == BrokenEntry(64, 110, "the checksum is wrong")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (head(size=27, flags=8) + b"\3", "priority 3 is not known"),
        (head(size=28, flags=2) + b"\1\0", "ends behind the entry"),
        (head(size=38, flags=2) + b"\2\0" + b"\1\0a\0\0" * 2, "there twice"),
        (head(size=33, flags=2) + b"\1\0\1\0\xff\0\0", "not UTF-8"),
        (head(size=26, flags=16), "flags 0x10 are not known"),
        (head(size=26, kind=9), "type 9 is not known"),
        (head(size=26, number=0), "id 0 behind id 0"),
        (head(size=26, number=ID_STEP_MAX + 1), "behind id 0"),
    ],
)
def test_what_no_entry_says_is_a_flaw(body, why):
    """Right sums do not make sense of it; the next entry is read."""
    flaw, entry = decode_segment(sealed(body) + encode_entry(ENTRIES[0]), SEED)

    assert isinstance(flaw, BrokenEntry)
    assert why in flaw.why
    assert isinstance(entry, LedgerqEntry)


def test_ids_go_on_from_segment_to_segment():
    """An id that another entry had is a flaw, whichever file that was in."""
    assert [type(found) for found in decode_segment(written(), SEED, after_id=2)] == [
        BrokenEntry,
        BrokenEntry,
        LedgerqEntry,
    ]


def test_a_jump_of_ids_is_damage_unless_the_files_name_says_so():
    """So a forged id does not make a topic of a billion seqs that stand for nothing."""
    data = encode_entry(LedgerqEntry(type=EntryType.DATA, id=3 * ID_STEP_MAX, timestamp_ns=TS, payload=b""))

    assert [type(found) for found in decode_segment(data, SEED)] == [BrokenEntry]
    assert [type(found) for found in decode_segment(data, SEED, about_id=3 * ID_STEP_MAX)] == [LedgerqEntry]


def test_tombstones_and_checkpoints_are_not_held_against_ids():
    """They speak of entries that are there already."""
    kinds = (EntryType.TOMBSTONE, EntryType.CHECKPOINT)
    marks = [LedgerqEntry(type=kind, id=1, timestamp_ns=TS, payload=b"") for kind in kinds]

    assert list(decode_segment(written([*ENTRIES, *marks]), SEED)) == placed([*ENTRIES, *marks])


@given(st.binary(max_size=300), st.sampled_from([SEED, RELEASE]))
def test_whatever_the_bytes_all_of_them_are_accounted_for(data, dialect):
    """Entries and flaws lie side by side from the first byte to the last."""
    flaws = [found for found in decode_segment(data, dialect) if isinstance(found, BrokenEntry)]

    assert sum(flaw.stop - flaw.offset for flaw in flaws) == len(data)


@pytest.mark.parametrize("dialect", [SEED, RELEASE])
def test_what_is_no_metadata_is_refused(dialect):
    """Not JSON, not of that size, or numbers that cannot be."""
    for data in (
        b"", b"[" * 3000, b'{"version": 1, "next_message_id": 1, "read_message_id": 2}', b"\2" + bytes(23),
    ):  # fmt: skip
        with pytest.raises(Corrupt):
            decode_position(data, dialect)


def test_metadata_comes_back():
    """As the seed's page has it; and as the release wrote it."""
    position = Position(next_id=42, read_id=20, created_s=1, updated_s=2, segments=3)
    release = (GOLDEN / "metadata.dat").read_bytes()

    assert decode_position(encode_position(position), SEED) == position
    assert decode_position(release, RELEASE) == Position(next_id=421, read_id=418)


def test_an_index_is_as_the_page_draws_it():
    """Magic, version, count; id, timestamp, offset."""
    assert encode_index([(1, 2, 3)]).hex(" ", 4) == (
        "4951444c 01000000 01000000 01000000 00000000 02000000 00000000 03000000 00000000"
    )
