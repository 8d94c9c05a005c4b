"""The bytes of an intention: the golden vectors of replication 10, one spelling, and a signature that binds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.crypto.keys import GROUP_ORDER, KeyPair
from topics.kernel.errors import Code, Corrupt, Rejected
from topics.weaver.model.bounds import Bounds
from topics.weaver.model.envelope import Envelope, accept
from topics.weaver.model.hlc import HLC
from topics.weaver.model.intention import ZERO_HASH, decode, encode, hash_of, sign, verify

pytestmark = pytest.mark.rule("R5.1.1", "R10.5", "R11.28")

STORE = b"\xaa" * 16
KEY = KeyPair.from_seed(b"\x2a" * 32)

hashes = st.binary(min_size=32, max_size=32)
hlcs = st.builds(HLC, st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))


def test_w1():
    """W1: 105 bytes, field by field, and their hash."""
    body = encode(b"\x01" * 32, HLC(1000, 5), STORE, ZERO_HASH, (), b"\x01\x02\x03\x04")

    expected = (
        b"\x01" * 32 + bytes.fromhex("e803000000000000" "05000000") + STORE + bytes(32)
        + b"\x00" + bytes(4) + bytes.fromhex("04000000" "01020304")
    )  # fmt: skip
    assert body == expected
    assert len(body) == 105
    assert hash_of(body).hex() == "684d58827a11317975266005e214665f5c0d599f0b5b4f2d9f3e9c56dbcdd30a"


def test_w2():
    """W2: other ops, another name."""
    body = encode(b"\x01" * 32, HLC(1000, 5), STORE, ZERO_HASH, (), b"\x09\x09\x09")

    assert hash_of(body).hex() == "5e0f41e0c4915a134e12f4023ba43f6b60f58f8751f96f8f86435f6de47c3b01"


def test_w3():
    """W3: the signature of a known key."""
    body = encode(KEY.public, HLC(1000, 0), b"\x01" * 16, ZERO_HASH, (), b"\x01\x02\x03")
    signature = sign(KEY, body)

    assert hash_of(body).hex() == "d88a3e301255a990a3bf5135cf6d1d0728c5bb6b1be575cb4c85ead8271fa31c"
    assert signature.hex() == (
        "9d3b08f7c1e8deb74ae9660eda0c11482e5b74436ae4abb632aec2745b2cd140"
        "d25db1ec4b5639c15018fc9c714ef61dac19f7ee3791a0ff091b2ca5c42ca00a"
    )
    assert verify(body, signature)


@pytest.mark.rule("R11.30", "R7.17")
@given(
    author=hashes, hlc=hlcs, store_id=st.binary(min_size=16, max_size=16), prev=hashes,
    condition=st.lists(hashes, max_size=5), ops=st.binary(max_size=40),
)  # fmt: skip
def test_round_trip(author, hlc, store_id, prev, condition, ops):
    """Every field comes back, the condition sorted and without repetition."""
    body = encode(author, hlc, store_id, prev, condition, ops)
    intention = decode(body)

    assert intention == (author, hlc, store_id, prev, tuple(sorted(set(condition))), ops)
    assert encode(*intention) == body


@pytest.mark.rule("R5.1.4")
@given(data=st.binary(max_size=300))
def test_any_bytes_are_one_intention_or_none(data):
    """What decodes encodes to the same bytes; all else is refused."""
    try:
        intention = decode(data)
    except Corrupt:
        return

    assert encode(*intention) == data


def body_with(condition):
    """A body whose condition is written as given, sorted or not."""
    plain = encode(KEY.public, HLC(1, 0), STORE, ZERO_HASH, (), b"")
    return plain[:93] + len(condition).to_bytes(4, "little") + b"".join(condition) + plain[97:]


@pytest.mark.rule("R5.1.4", "R7.16", "R11.30")
def test_another_spelling_is_refused():
    """Unsorted, repeated, an unknown tag, a byte too many, a byte too few: each is refused by name."""
    low, high = b"\x01" * 32, b"\x02" * 32
    good = body_with([low, high])

    assert decode(good).condition == (low, high)
    with pytest.raises(Corrupt, match="ascend"):
        decode(body_with([high, low]))
    with pytest.raises(Corrupt, match="ascend"):
        decode(body_with([low, low]))
    with pytest.raises(Corrupt, match="tag 1"):
        decode(good[:92] + b"\x01" + good[93:])
    with pytest.raises(Corrupt, match="belong"):
        decode(good + b"\x00")
    with pytest.raises(Corrupt, match="fit in"):
        decode(good[:-1])
    with pytest.raises(Corrupt, match="do not fit"):
        decode(good[:93] + b"\xff\xff\xff\xff" + good[97:])
    with pytest.raises(Corrupt, match="smallest"):
        decode(b"")


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("author", (b"", HLC(0, 0), STORE, ZERO_HASH, (), b"")),
        ("store_id", (KEY.public, HLC(0, 0), b"x", ZERO_HASH, (), b"")),
        ("store_prev", (KEY.public, HLC(0, 0), STORE, b"x", (), b"")),
        ("condition", (KEY.public, HLC(0, 0), STORE, ZERO_HASH, (b"x",), b"")),
        ("hlc", (KEY.public, HLC(2**64, 0), STORE, ZERO_HASH, (), b"")),
        ("hlc", (KEY.public, HLC(0, 2**32), STORE, ZERO_HASH, (), b"")),
        ("hlc", (KEY.public, HLC(-1, 0), STORE, ZERO_HASH, (), b"")),
    ],
)
def test_a_field_of_the_wrong_size_is_named(field, given):
    """The caller is told which field."""
    with pytest.raises(Rejected, match=field) as refused:
        encode(*given)
    assert refused.value.detail["field"] == field


@pytest.mark.rule("R5.1.2", "R7.11", "R10.6", "R11.29")
def test_w23_limits():
    """W23: 16 parents and 131 072 bytes of ops pass, one more is refused, and empty ops are legal."""
    bounds = Bounds()
    parents = [bytes([i]) * 32 for i in range(1, 18)]

    def sealed(condition, ops):
        return Envelope.sealed(KEY, encode(KEY.public, HLC(1, 0), STORE, ZERO_HASH, condition, ops))

    accept(sealed(parents[:16], bytes(131_072)), STORE, bounds)
    accept(sealed((), b""), STORE, bounds)
    with pytest.raises(Rejected, match="17 hashes are more than 16"):
        accept(sealed(parents, b""), STORE, bounds)
    with pytest.raises(Rejected, match="131073 bytes are more than 131072") as refused:
        accept(sealed((), bytes(131_073)), STORE, bounds)
    assert refused.value.code is Code.RECORD_TOO_LARGE


@pytest.mark.rule("R5.1.2")
def test_limits_are_checked():
    """A bound that makes no sense is refused when it is set."""
    with pytest.raises(Rejected, match="ops_bytes"):
        Bounds(ops_bytes=0)
    with pytest.raises(Rejected, match="condition_hashes"):
        Bounds(condition_hashes=1)
    with pytest.raises(Rejected, match="four bytes"):
        Bounds(ops_bytes=2**32)


@pytest.mark.rule("R5.2.1", "R9.34")
def test_any_flipped_bit_is_refused():
    """P34: no single bit of an envelope can change without the gate noticing."""
    envelope = Envelope.sealed(
        KEY, encode(KEY.public, HLC(1000, 1), STORE, b"\x07" * 32, [b"\x08" * 32], b"ops")
    )
    data = envelope.encode()
    accept(Envelope.decode(data), STORE, Bounds())

    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises((Corrupt, Rejected)):
            accept(Envelope.decode(bytes(flipped)), STORE, Bounds())


@pytest.mark.rule("R5.1.4", "R13.1")
def test_signatures_are_strict():
    """A signature with S + order, and one of a key of small order, verify nothing."""
    body = encode(KEY.public, HLC(1, 0), STORE, ZERO_HASH, (), b"")
    signature = sign(KEY, body)
    larger = int.from_bytes(signature[32:], "little") + GROUP_ORDER

    assert not verify(body, signature[:32] + larger.to_bytes(32, "little"))
    small = b"\x01" + bytes(31)
    forged = encode(small, HLC(1, 0), STORE, ZERO_HASH, (), b"")
    assert not verify(forged, small + bytes(32))
    assert not verify(body, b"")
    assert not verify(b"short", signature)


def test_a_short_envelope_is_refused():
    """Too few bytes for a signature and the smallest intention."""
    with pytest.raises(Corrupt, match="envelope"):
        Envelope.decode(bytes(164))
