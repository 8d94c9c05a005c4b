"""The connection in memory: pieces stay pieces, a full one waits, and its ends are those of TCP."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from topics.testing.streams import edge_pair

pytestmark = pytest.mark.trio


async def test_pieces_arrive_as_they_were_sent():
    ours, theirs = edge_pair()
    for piece in (b"a", b"bc", b"d"):
        await ours.send_all(piece)
    await ours.send_eof()

    assert [await theirs.receive() for _ in range(5)] == [b"a", b"bc", b"d", b"", b""]


async def test_a_full_connection_makes_send_all_wait_and_try_send_take_less():
    ours, theirs = edge_pair(capacity=4)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.send_all, b"abcdefgh")
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            ours.try_send(b"x")

        assert await theirs.receive() == b"abcd"
        assert await theirs.receive() == b"efgh"
    assert ours.try_send(b"123456") == 4
    assert ours.try_send(b"56") == 0
    assert theirs.unread_bytes == 4


async def test_a_half_closed_end_still_receives():
    ours, theirs = edge_pair()
    await ours.send_eof()

    assert await theirs.receive() == b""
    await theirs.send_all(b"answer")
    assert await ours.receive() == b"answer"
    with pytest.raises(trio.ClosedResourceError):
        await ours.send_all(b"more")


async def test_a_clean_close_gives_what_was_sent_and_then_the_end():
    ours, theirs = edge_pair()
    await ours.send_all(b"last")
    await ours.aclose()

    assert [await theirs.receive(), await theirs.receive()] == [b"last", b""]
    with pytest.raises(trio.ClosedResourceError):
        await ours.receive()


async def test_a_close_with_bytes_unread_resets_and_loses_what_was_under_way():
    ours, theirs = edge_pair()
    await theirs.send_all(b"never read")
    await ours.send_all(b"an answer nobody will see")
    await ours.aclose()

    with pytest.raises(trio.BrokenResourceError):
        await theirs.receive()


async def test_bytes_sent_to_an_end_that_has_closed_reset_the_connection():
    ours, theirs = edge_pair()
    await ours.send_all(b"an answer")
    await ours.aclose()

    with pytest.raises(trio.BrokenResourceError):
        await theirs.send_all(b"too late")
    with pytest.raises(trio.BrokenResourceError):
        await theirs.receive()


async def test_a_close_ends_a_waiting_receive_of_either_side():
    ours, theirs = edge_pair()
    ends = []

    async def receive(edge):
        try:
            ends.append(await edge.receive())
        except trio.ClosedResourceError:
            ends.append("closed")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive, ours)
        nursery.start_soon(receive, theirs)
        await wait_all_tasks_blocked()
        ours.close()

    assert sorted(ends, key=str) == [b"", "closed"]


async def test_a_cancelled_receive_takes_nothing():
    ours, theirs = edge_pair()
    with trio.move_on_after(0):
        await theirs.receive()
    await ours.send_all(b"kept")

    assert await theirs.receive() == b"kept"
