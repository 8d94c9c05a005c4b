"""What is around a large command: found without building the rest, in a bounded number of steps (http-api 1, 10)."""

import pytest

from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import Limits
from topics.server.api.bodies.envelope import decode_envelope

VALUE = b'"%b"' % (b"x" * 60)


def message(values, *, ends=b""):
    return b'{"topics":[%b%b],"op":"unsubscribe","request_id":7}' % (b",".join([VALUE] * values), ends)


@pytest.mark.rule("H10.2")
def test_a_list_of_values_that_are_walked_one_by_one_is_as_long_as_a_write_at_most():
    limits = Limits()
    found = decode_envelope(message(limits.records_per_write), limits)
    assert (bytes(found.op), bytes(found.request_id)) == (b'"unsubscribe"', b"7")
    with pytest.raises(Rejected, match="topics: more than the limit of 10000 a write") as refused:
        # What comes behind is not looked at: each value costs a step of Python, and 64 MiB have room for 16 million.
        decode_envelope(message(limits.records_per_write, ends=b",1,here nothing is JSON"), limits)
    assert (refused.value.code, refused.value.detail) == (Code.BATCH_TOO_LARGE, {"limit": 10_000})


def test_records_that_are_taken_by_runs_are_not_counted():
    """The op counts them, and says how many there are."""
    records = b",".join([b'{"data":%b}' % VALUE] * 20_000)
    found = decode_envelope(b'{"records":[%b],"op":"publish"}' % records, Limits())
    assert bytes(found.op) == b'"publish"'
