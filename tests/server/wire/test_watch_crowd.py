"""A crowd that watches one topic, and one among it who reads nothing (semantics 11)."""

import pytest
from trio.testing import MockClock

from tests.server.wire.playing import pass_time
from tests.server.wire.watching import place, seqs

pytestmark = pytest.mark.trio

CROWD = 1000
ROUNDS = 5
TEXT = "x" * 1000


@pytest.fixture
def mock_clock():
    return MockClock()


async def stream_at_tail(here, **options):
    events = await here.stream(topics={"t": {"tail": True}}, **options)
    assert (await events.told())[0] == "caught-up"
    return events


@pytest.mark.rule("S11.1", "S11.2", "S11.3", "H9.17")
@pytest.mark.parametrize("cap", [0, 4])
async def test_a_crowd_is_sent_all_in_order_beside_one_who_reads_nothing_and_comes_back(mock_clock, cap):
    """He is cut at his deadline, and goes on without loss, or is told exactly what is gone by then."""
    async with place() as here:
        await here.make(**({"cap_records": cap} if cap else {}))
        wid = (await here.watch(topics={"t": {"tail": True}}))["wid"]
        stuck = await here.stream(wid=wid, back=1500)
        assert (await stuck.told())[0] == "caught-up"
        crowd = [await stream_at_tail(here) for _ in range(CROWD)]
        for head in range(1, ROUNDS + 1):
            await here.put(TEXT)
            await here.settled()
            for events in crowd:
                assert seqs(await events.told()) == [head]
                assert not events.has_more()
        assert here.site.unsent_bytes < 3 * len(TEXT)  # of who reads nothing, whatever comes
        await pass_time(32)
        assert here.site.streams.taken == CROWD
        for _ in range(ROUNDS):
            await here.put(TEXT)
        last_id = await _what_had_come(stuck)
        back = await here.stream(wid=wid, last_id=last_id)
        lost, found, head = [], [], 2 * ROUNDS
        while not found or found[-1] < head:
            name, _, data = told = await back.told()
            if name == "tombstone":
                lost += range(data["gap_from"], data["gap_to"] + 1)
            else:
                found += seqs(told)
        live = range(head - cap + 1 if cap else 1, head + 1)
        assert found == [seq for seq in live if seq > 1]  # the first had come
        assert lost == list(range(2, live[0]))
        await here.gone(*crowd, back)


async def _what_had_come(stuck):
    """The id of the last event that is whole in what was left unread when the connection was cut."""
    last_id = None
    while text := await stuck.text():
        last_id = text.partition("\nid: ")[2]
    assert last_id is not None
    return last_id
