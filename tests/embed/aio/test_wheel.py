"""The wheel looks at whoever is due, whatever they do to each other meanwhile."""

import pytest
import trio
from trio.testing import MockClock

from topics.embed.aio.wheel import TICK_S, Wheel

pytestmark = pytest.mark.trio


@pytest.fixture
def mock_clock():
    return MockClock(autojump_threshold=0)


class Dropping:
    """Who is looked at, and then sees to it that another is not."""

    def __init__(self, wheel, looked):
        self.tick = None
        self.other = None
        self.later_s = None
        self._wheel, self._looked = wheel, looked

    def due(self):
        self._looked.append((self, trio.current_time()))
        if self.later_s is None:
            self._wheel.drop(self.other)
        else:
            self._wheel.set(self.other, self.later_s)


async def looked_at(at_s, later_s=None):
    """Two of whom each drops the other, or sets it later; whom the wheel looked at, and when."""
    wheel, looked = Wheel(), []
    one, two = Dropping(wheel, looked), Dropping(wheel, looked)
    one.other, two.other = two, one
    one.later_s = later_s
    async with trio.open_nursery() as nursery:
        wheel.set(one, at_s[0])
        wheel.set(two, at_s[1])
        nursery.start_soon(wheel.run)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert (len(wheel), one.tick, two.tick) == (0, None, None)
    return [("one" if who is one else "two", when) for who, when in looked]


@pytest.mark.parametrize("apart_s", [0, TICK_S])
async def test_who_is_dropped_by_another_that_is_due_is_not_looked_at(mock_clock, apart_s):
    assert await looked_at((1, 1 + apart_s)) == [("one", 1.0)]


async def test_who_is_set_later_by_another_that_is_due_is_looked_at_then(mock_clock):
    assert await looked_at((1, 1), later_s=3) == [("one", 1.0), ("two", 3.0)]


async def test_who_is_dropped_by_another_of_a_tick_that_is_past_as_well_is_not_looked_at(mock_clock):
    mock_clock.jump(5)
    assert await looked_at((1, 2)) == [("one", 5.0)]
