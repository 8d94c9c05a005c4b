"""Who takes a stream of events: what its `Accept` says, by the closest range (http-api 1)."""

import pytest

from topics.kernel.errors import Code, Rejected
from topics.server.api.events import check_accepted
from topics.server.api.message import Head


def head(accept):
    return Head(b"GET", b"/v0/watch/wid_1", headers={} if accept is None else {b"accept": accept})


TAKES = [
    None, b"*/*", b"text/event-stream", b"Text/Event-Stream;charset=utf-8", b"text/*;q=0.1", b"text/html, */*",
    b"text/event-stream;q=0.001, */*;q=0",
]  # fmt: skip
LEAVES_OUT = [
    b"", b"application/json", b"text/html", b"text/event-streams", b"text/event-stream;q=0",
    b"*/*, text/event-stream; Q=0.000", b"*/*;q=0.0", b"text/*;q=0, */*",
]  # fmt: skip


@pytest.mark.rule("H1.27")
@pytest.mark.parametrize("accept", TAKES)
def test_who_takes_events_is_given_them(accept):
    check_accepted(head(accept))


@pytest.mark.rule("H1.27")
@pytest.mark.parametrize("accept", LEAVES_OUT)
def test_who_leaves_them_out_is_told_so(accept):
    with pytest.raises(Rejected) as refused:
        check_accepted(head(accept))

    assert refused.value.code is Code.NOT_ACCEPTABLE
