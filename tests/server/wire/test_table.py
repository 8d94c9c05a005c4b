"""The table of architecture 5: each transcript has one outcome, whole, byte by byte and split in two."""

import pytest
import trio
from trio.testing import MockClock

from tests.server.wire.places import open_site
from tests.server.wire.playing import play_every_way
from tests.transcripts import bodies, expecting, heads, pipelining, slowness, smuggling
from topics.engine.commands import PutTopic
from topics.kernel.config import parse_config

pytestmark = pytest.mark.trio


@pytest.fixture
def mock_clock():
    """Stands still unless a transcript lets it move."""
    return MockClock()


def table(cases):
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


async def plays(case, **how):
    before = trio.lowlevel.current_statistics().tasks_living
    async with open_site() as site:
        await site.ready_runtime().submit(PutTopic(topic="t", config=parse_config({"durability": "memory"})))
        living = trio.lowlevel.current_statistics().tasks_living
        seen = await play_every_way(site, case, **how)

        assert trio.lowlevel.current_statistics().tasks_living == living, "a task is left"
        assert site.held_bytes == 0, "held bytes are left"
    assert trio.lowlevel.current_statistics().tasks_living == before
    return seen


SPLIT = [
    *pipelining.PIPELINING,
    *heads.VERSIONS,
    *heads.LINES,
    *heads.TARGETS,
    *heads.HOSTS,
    *heads.CONNECTION,
    *heads.HEADS,
    *heads.ENDS,
    *smuggling.LENGTHS,
    *smuggling.CODINGS,
    *smuggling.FIELDS,
    *bodies.DECLARED,
    *bodies.GZIP,
    *bodies.CHUNKS,
    *bodies.LIMITS,
    *expecting.EXPECTING,
    *expecting.UPGRADE,
]


@pytest.mark.slow
@table(SPLIT)
async def test_a_split_at_any_point_changes_nothing(mock_clock, case):
    await plays(case, split_every=1)


@pytest.mark.rule("A5.2", "A5.3", "A5.18")
@table(pipelining.PIPELINING)
async def test_pipelined_requests_are_answered_in_order(mock_clock, case):
    await plays(case)


@pytest.mark.rule("A5.2", "A5.15")
@table(heads.VERSIONS)
async def test_versions(mock_clock, case):
    await plays(case)


@pytest.mark.rule("A5.2", "H1.24", "H1.26")
@table(heads.LINES)
async def test_request_lines(mock_clock, case):
    await plays(case)


@pytest.mark.rule("A5.2", "A5.17")
@table(heads.TARGETS)
async def test_targets(mock_clock, case):
    await plays(case)


@pytest.mark.rule("A5.2", "A5.5", "H2.21")
@table(heads.HOSTS)
async def test_hosts(mock_clock, case):
    await plays(case)


@pytest.mark.rule("A5.2", "A5.18", "A5.19")
@table(heads.CONNECTION)
async def test_connection_tokens(mock_clock, case):
    await plays(case)


@pytest.mark.rule("A5.2", "A5.16")
@table(heads.HEADS)
async def test_head_is_get_without_its_body(mock_clock, case):
    await plays(case)


@pytest.mark.rule("A5.2", "A5.21")
@table(heads.ENDS)
async def test_ends(mock_clock, case):
    await plays(case)


@pytest.mark.rule("A5.2", "A5.6", "A5.7")
@table(smuggling.LENGTHS)
async def test_lengths_that_are_refused(mock_clock, case):
    await plays(case)


@pytest.mark.rule("A5.2", "A5.8")
@table(smuggling.CODINGS)
async def test_codings_that_are_refused(mock_clock, case):
    await plays(case)


@pytest.mark.rule("A5.2", "A5.9", "A5.10", "A5.11")
@table(smuggling.FIELDS)
async def test_fields_that_are_refused(mock_clock, case):
    await plays(case)


@pytest.mark.rule("A5.2", "A5.20", "H1.3", "H1.4", "H1.8", "H1.31")
@table(bodies.DECLARED)
async def test_bodies_of_a_length(mock_clock, case):
    await plays(case)


@pytest.mark.rule("A5.2", "H1.6")
@table(bodies.GZIP)
async def test_compressed_bodies(mock_clock, case):
    await plays(case)


@pytest.mark.rule("A5.2", "A5.24")
@table(bodies.CHUNKS)
async def test_bodies_in_chunks(mock_clock, case):
    await plays(case)


@pytest.mark.rule("A5.2", "H1.28", "H1.47")
@table(bodies.LIMITS)
async def test_heads_at_their_limits(mock_clock, case):
    await plays(case)


@pytest.mark.rule("A5.2", "A5.13", "A5.14")
@table(expecting.EXPECTING)
async def test_expect(mock_clock, case):
    await plays(case)


@pytest.mark.rule("A5.2", "A5.12")
@table(expecting.UPGRADE)
async def test_upgrades_are_ignored(mock_clock, case):
    await plays(case)


@pytest.mark.rule("A5.2", "H1.28", "H1.47")
@table(slowness.HEADS)
async def test_slow_heads(mock_clock, case):
    await plays(case, splits=False)


@pytest.mark.rule("A5.2", "H1.28", "H1.48")
@table(slowness.BODIES)
async def test_slow_bodies(mock_clock, case):
    await plays(case, splits=False)


@pytest.mark.rule("A5.2", "H1.48")
@table(slowness.IDLE)
async def test_idle_connections_end_without_a_word(mock_clock, case):
    await plays(case, splits=False)
