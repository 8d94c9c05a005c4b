"""Reading: what a page says of every seq it passes, its tombstone, its epoch, and where it starts and ends."""

import pytest

from tests.engine.driving import T0, Driver
from topics.log.reads import diff, tombstone
from topics.log.reads.match import parse_match

ACCOUNT = ("delivered", "lost", "deleted", "expired", "own_node", "filtered")


def told(plan):
    return {name: getattr(plan.account, name) for name in ACCOUNT if getattr(plan.account, name)}


def gap(plan):
    return plan.gap and (plan.gap.gap_from, plan.gap.gap_to, plan.gap.reason.value)


@pytest.fixture
def driver():
    driver = Driver()
    driver.put()
    return driver


@pytest.mark.rule("S1.3", "S1.8", "S4.15")
def test_an_empty_topic_and_the_exclusive_bound(driver):
    plan, records = driver.read()

    assert (plan.from_seq, plan.next_from_seq, plan.head_seq, plan.epoch, records) == (0, 0, 0, 1, [])
    assert plan.caught_up
    driver.append(1, 2, 3)
    assert driver.datas(from_seq=2) == [b"3"]
    assert driver.datas(from_seq=3) == []
    assert driver.plan(from_seq=1).from_seq - 0 == 1


@pytest.mark.rule("S1.1", "S1.2", "S9.7")
def test_a_record_comes_back_as_it_went_in(driver):
    driver.append(
        b'{"a":[1]}',
        b"\x00\xff",
        node=b"n",
        tag=b"t",
        key=b"k",
        meta=b'{"m":"1"}',
        content_type=[b"", b"image/png"],
    )
    for _ in range(2):
        first, second = driver.read(limit=2)[1]

        assert (
            first.seq, first.ts, first.data, first.node, first.tag, first.key, first.meta, first.content_type,
        ) == (1, T0, b'{"a":[1]}', b"n", b"t", b"k", b'{"m":"1"}', b"")  # fmt: skip
        assert (second.seq, second.data, second.content_type) == (2, b"\x00\xff", b"image/png")
        driver.append(b"more")


@pytest.mark.rule("S4.1")
def test_each_seq_is_classed_by_the_first_thing_that_holds(driver):
    driver.append(*range(9), node=b"me", tag=b"drop", ttl_ms=5)  # all that can be wrong with a record
    driver.append(9, node=b"me", tag=b"drop", ttl_ms=5)
    driver.append(10, node=b"me", tag=b"drop")
    driver.append(11, node=b"you", tag=b"drop")
    driver.append(12, node=b"you", tag=b"keep")
    driver.delete(before_seq=10)
    driver.engine.state.catalog.find("t").retired_ms = T0 + 6  # own TTL is decided at read time
    driver.clock.advance(6)
    plan, records = driver.read(nodes=frozenset({b"me"}), match="keep")

    assert told(plan) == {"delivered": 1, "deleted": 9, "expired": 1, "own_node": 1, "filtered": 1}
    assert [record.data for record in records] == [b"12"]


@pytest.mark.rule("S2.4", "S4.1", "S4.7", "S4.8", "S4.9")
def test_what_the_tombstone_takes_is_lost_whatever_else_had_happened_to_it(driver):
    driver.append(*range(4))
    driver.delete(before_seq=3)
    driver.put(cap_records=2)
    driver.append(4, 5)  # evicts 3 and 4, the deleted 1 and 2 are below the floor now
    plan, _ = driver.read()

    assert gap(plan) == (1, 4, "cap")
    assert told(plan) == {"lost": 4, "delivered": 2}
    assert (plan.gap.missed_estimate, plan.gap.earliest_seq, plan.gap.head_seq) == (4, 5, 6)
    assert gap(driver.read(from_seq=1)[0]) == (2, 4, "cap")
    assert gap(driver.read(from_seq=3)[0]) == (4, 4, "cap")
    assert gap(driver.read(from_seq=4)[0]) is None


@pytest.mark.rule("S4.7")
def test_a_gap_over_the_floor_reaches_to_the_first_live_record(driver):
    driver.put(cap_records=4)
    driver.append(*range(5))
    driver.delete(before_seq=4)

    assert (driver.state().evict_floor, driver.state().earliest_seq) == (2, 4)
    assert gap(driver.read()[0]) == (1, 3, "cap")
    plan = driver.read(from_seq=1)[0]
    assert gap(plan) is None
    assert told(plan) == {"deleted": 2, "delivered": 2}


@pytest.mark.rule("S4.10", "S4.11")
def test_mixed_is_said_only_of_a_gap_that_has_both_reasons(driver):
    driver.put(cap_records=2)
    driver.append(1, 2, 3)  # 1 goes by the cap
    driver.put(cap_records=2, ttl_ms=10)
    driver.clock.advance(1011)

    assert gap(driver.read()[0]) == (1, 3, "mixed")
    assert gap(driver.read(from_seq=1)[0]) == (2, 3, "ttl")


@pytest.mark.rule("S2.18", "S4.7", "S4.9", "S4.12", "S4.23")
def test_a_page_ends_before_a_lost_range_and_the_next_begins_with_it(driver):
    driver.append(1, 2)
    driver.clock.advance(50)
    driver.restart(machine_restarted=True)
    driver.clock.advance(50)
    driver.append(3)
    first = driver.read()[0]
    second = driver.read(from_seq=first.next_from_seq)[0]

    assert (gap(first), first.next_from_seq, first.caught_up) == (None, 2, False)
    assert (gap(second), second.next_from_seq) == ((3, 64, "crash"), 65)
    assert gap(driver.read(from_seq=10)[0]) == (11, 64, "crash")
    assert driver.state().evict_floor == 1  # a lost range never moves it
    assert [driver.plan(from_ts=T0 + ms).from_seq for ms in (1, 50, 51, 101)] == [2, 2, 64, 65]


@pytest.mark.rule("S2.2", "S4.10", "S4.12")
def test_a_gap_over_floor_and_lost_range_has_the_reasons_of_both(driver):
    driver.put(cap_records=2)
    driver.append(1, 2)
    driver.restart(machine_restarted=True)
    driver.append(3, 4)

    assert gap(driver.read()[0]) == (1, 64, "mixed")
    assert gap(driver.read(from_seq=2)[0]) == (3, 64, "crash")


@pytest.mark.rule("S4.16", "S4.17", "S4.18", "S1.9")
def test_another_epoch_or_a_bound_above_the_head_starts_again_from_nothing(driver):
    driver.put(cap_records=3)
    driver.append(*range(5))
    driver.drop()
    driver.put(cap_records=3)
    driver.append(*range(4))
    for query in ({"epoch": 1, "from_seq": 3}, {"from_seq": 5}, {"epoch": 3, "from_seq": 0}):
        plan = driver.read(**query)[0]

        assert (gap(plan), plan.from_seq, plan.epoch, plan.next_from_seq) == ((1, 4, "recreated"), 0, 2, 4)
        assert told(plan) == {"lost": 1, "delivered": 3}
    assert (
        driver.read(epoch=2, from_seq=4)[0].from_seq,
        gap(driver.read(epoch=2, from_seq=4)[0]),
    ) == (4, None)


@pytest.mark.rule("S4.21", "S4.24")
def test_from_ts_stands_before_the_first_record_at_or_after_it(driver):
    for ms in (0, 10, 10, 30):
        driver.clock.set(T0 + ms)
        driver.append(ms)

    assert [driver.plan(from_ts=T0 + ms).from_seq for ms in (-5, 0, 5, 10, 11, 30, 31)] == [
        0,
        0,
        1,
        1,
        3,
        3,
        4,
    ]


@pytest.mark.rule("S4.22", "S4.23")
def test_from_ts_at_or_below_the_last_loss_starts_below_the_loss(driver):
    driver.put(cap_records=1)
    driver.append(1)
    driver.clock.advance(10)
    driver.append(2, 3)  # 1 and 2 are lost, the last of them at T0 + 10

    assert gap(driver.read(from_ts=T0 + 10)[0]) == (1, 2, "cap")
    plan = driver.read(from_ts=T0 + 11)[0]
    assert (plan.from_seq, gap(plan)) == (3, None)


@pytest.mark.rule("S4.20", "S4.25", "S0.1")
def test_a_clock_that_steps_back_moves_no_ts_and_no_floor_back(driver):
    driver.put(ttl_ms=100)
    driver.append(1)
    driver.clock.advance(1101)
    assert driver.datas() == []
    driver.append(2)
    driver.clock.set(T0)
    driver.append(3)

    assert [record.ts for record in driver.read()[1]] == [T0 + 1101, T0 + 1101]
    assert driver.state().evict_floor == 2


@pytest.mark.rule("S4.3", "S4.4")
def test_skipped_seqs_advance_the_cursor_and_only_the_head_is_caught_up(driver):
    driver.append(*range(5), node=b"me")
    driver.append(5, 6)
    plan, records = driver.read(nodes=frozenset({b"me"}), limit=1)

    assert ([r.data for r in records], plan.next_from_seq, plan.caught_up) == ([b"5"], 6, False)
    driver.append(7, node=b"me")
    plan, records = driver.read(nodes=frozenset({b"me"}), from_seq=7)
    assert (records, plan.next_from_seq, plan.caught_up) == ([], 8, True)


@pytest.mark.rule("S3.22", "S1.10")
def test_own_records_come_if_the_topic_says_so(driver):
    driver.append(1, 2, node=[b"me", b"you"])

    assert driver.datas(nodes=frozenset({b"me"})) == [b"2"]
    assert driver.datas(nodes=frozenset({b"me", b"you", b"nobody"})) == []
    driver.put(dedupe_node=False)
    assert driver.datas(nodes=frozenset({b"me"})) == [b"1", b"2"]


@pytest.mark.rule("S4.5", "S4.6")
def test_a_read_examines_so_many_seqs_and_no_more(driver):
    for _ in range(11):
        driver.append(*[b"x"] * 10_000, tag=b"no")
    query = diff.DiffQuery(topic="t", match=parse_match("yes", tag_bytes_max=256))
    start = tombstone.classify(driver.topic().index, driver.topic().floors, 0, same_epoch=True)
    scan, slices = diff._Scan(driver.topic(), query, 0, start, driver.topic().index.head_seq), []
    while not scan.ended:
        slices.append(scan.cursor)
        scan.step()
    plan, records = driver.read(match="yes")

    assert (plan.next_from_seq, plan.caught_up, records) == (100_000, False, [])
    assert list(range(0, 100_000, 8192)) == slices
    assert told(plan) == {"filtered": 100_000}
    plan, _ = driver.read(match="yes", from_seq=100_000)
    assert (plan.next_from_seq, plan.caught_up) == (110_000, True)


@pytest.mark.parametrize("extra", [{}, {"tag": b"t"}])
def test_the_byte_budget_cuts_a_page_but_never_to_nothing(driver, extra):
    for data in (b"x" * 100, b"y" * 100, b"z" * 100):
        driver.append(data, **extra)
    match = "t" if extra else None
    size = driver.topic().index.lengths[0]

    for budget, count in ((0, 1), (1, 1), (2 * size - 1, 1), (2 * size, 2), (3 * size, 3)):
        plan = driver.plan(bytes_max=budget, match=match)
        assert (count, count) == (len(plan.seqs), plan.next_from_seq)


@pytest.mark.rule("S4.26", "S4.27")
def test_a_floor_moved_by_time_alone_is_logged_before_it_is_reported(driver):
    driver.put(ttl_ms=100)
    driver.append(1)
    driver.clock.advance(101)
    due = driver.engine.read_due("t")
    assert due is not None
    assert driver.state().evict_floor == 1
    assert gap(driver.read()[0]) == (1, 1, "ttl")
    assert driver.replay().find("t").evict_floor == 2

    driver.append(2)
    driver.clock.advance(999)  # 2 is over, but less than a second has passed since the watermark
    before = len(driver.wals[0])
    assert driver.engine.read_due("t") is None
    assert driver.datas() == [b"2"]
    assert before == len(driver.wals[0])
    driver.clock.advance(1)
    assert gap(driver.read()[0]) == (1, 2, "ttl")
    assert driver.engine.read_due("t") is None
