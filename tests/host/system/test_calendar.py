"""Cron expressions in time zones: clocks set forward and back, leap days, and what is none."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.host.system.calendar import HostCalendar
from topics.kernel.errors import Rejected

BERLIN = "Europe/Berlin"
CALENDAR = HostCalendar()


def ms(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def found(cron, zone, after, count):
    """As UTC, to the minute."""
    instants = islice(CALENDAR.instants(cron, zone, ms(after)), count)
    return [datetime.fromtimestamp(one / 1000, UTC).strftime("%m-%d %H:%M") for one in instants]


@pytest.mark.rule("Q4.19")
def test_a_local_time_that_is_skipped_comes_at_the_next_there_is():
    """On 29 March 2026 Berlin goes from 02:00 to 03:00, which is 01:00 UTC."""
    assert found("30 2 * * *", BERLIN, "2026-03-28T00:00", 3) == ["03-28 01:30", "03-29 01:00", "03-30 00:30"]


def test_several_that_are_skipped_come_together_and_once():
    assert found("0,15,30 2,3 * * *", BERLIN, "2026-03-28T22:00", 4) == [
        "03-29 01:00", "03-29 01:15", "03-29 01:30", "03-30 00:00",
    ]  # fmt: skip


@pytest.mark.rule("Q4.19")
def test_a_local_time_that_is_repeated_comes_once():
    """On 25 October 2026 Berlin goes from 03:00 back to 02:00: 02:30 is 00:30 and 01:30 UTC."""
    expected = ["10-25 00:30", "10-26 01:30"]
    assert found("30 2 * * *", BERLIN, "2026-10-24T23:00", 2) == expected
    assert found("30 2 * * *", BERLIN, "2026-10-25T00:29", 2) == expected
    for in_or_behind in ("00:30", "00:31", "01:00", "01:29", "01:30", "02:00"):
        assert found("30 2 * * *", BERLIN, f"2026-10-25T{in_or_behind}", 1) == ["10-26 01:30"]


def test_a_rhythm_goes_on_through_both():
    forward = [f"03-29 0{hour}:{minute}" for hour in (0, 1, 2) for minute in ("00", "30")]
    back = [f"10-25 0{hour}:{minute}" for hour in (0, 1, 2) for minute in ("00", "30")]
    assert found("*/30 * * * *", BERLIN, "2026-03-28T23:59", 6) == forward
    assert found("*/30 * * * *", BERLIN, "2026-10-24T23:59", 6) == back


def test_leap_days_and_last_days():
    leap = [datetime.fromtimestamp(one / 1000, UTC).year for one in islice(
        CALENDAR.instants("0 0 29 2 *", "UTC", ms("2096-01-01T00:00")), 3
    )]  # fmt: skip
    assert leap == [2096, 2104, 2108]  # 2100 has none
    assert found("0 12 L * *", "UTC", "2026-02-01T00:00", 2) == ["02-28 12:00", "03-31 12:00"]


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (("@yearly", "@annually"), "0 0 1 1 *"),
        (("@monthly",), "0 0 1 * *"),
        (("@weekly",), "0 0 * * 0"),
        (("@daily", "@midnight"), "0 0 * * *"),
        (("@hourly",), "0 * * * *"),
    ],
)
@pytest.mark.parametrize("zone", [BERLIN, "Africa/Cairo"])  # where a midnight is skipped, and one repeated
def test_a_word_is_short_for_five_fields(words, fields, zone):
    expected = found(fields, zone, "2026-04-20T00:00", 300)
    for word in words:
        assert found(word, zone, "2026-04-20T00:00", 300) == expected


def test_what_is_no_word_is_told_those_that_there_are():
    with pytest.raises(
        Rejected, match="'@reboot' is no cron expression: a schedule goes by the clock, and nothing"
    ):
        next(CALENDAR.instants("@reboot", "UTC", 0))
    with pytest.raises(
        Rejected, match="'@every 5m' is no cron expression: of words there are @yearly, @annually, "
    ):
        next(CALENDAR.instants("@every 5m", "UTC", 0))


@pytest.mark.parametrize(
    ("cron", "zone", "said"),
    [
        ("0 22-2 * * *", "UTC", "hour '22-2' is not 0 to 23; a range goes from the lower to the higher"),
        ("0 3 * * * *", "UTC", "month, day of week; it has 6"),
        ("* * * * *", "berlin", "'berlin' is no time zone: did you mean Europe/Berlin?"),
        ("* * * * *", "new york", "'new york' is no time zone: did you mean America/New_York?"),
        ("* * * * *", "utc", "'utc' is no time zone: did you mean UTC?"),
        ("* * * * *", "knox", "'knox' is no time zone: did you mean America/Indiana/Knox?"),
        ("* * * * *", "GMT+2", "'GMT+2' is no time zone: give one of the IANA list, as Europe/Berlin"),
    ],
)
def test_what_is_nearly_one_is_told_the_way(cron, zone, said):
    with pytest.raises(Rejected) as refused:
        next(CALENDAR.instants(cron, zone, 0))
    assert refused.value.message.endswith(said)


def test_what_never_comes_has_no_instant():
    assert (
        found("0 0 31 2,4 1#1", "UTC", "2026-01-01T00:00", 1) != []
    )  # one of the two is enough (cron's way)
    with pytest.raises(Rejected, match="cron: '0 0 30 2 \\*'"):
        found("0 0 30 2 *", "UTC", "2026-01-01T00:00", 1)
    assert list(CALENDAR.instants("* * */20 * 1L", "UTC", 0)) == []
    assert list(CALENDAR.instants("0 0 * * *", "UTC", 2**62)) == []


@pytest.mark.parametrize(
    ("cron", "zone", "field"),
    [
        ("", "UTC", "cron"), ("* * * *", "UTC", "cron"), ("* * * * * *", "UTC", "cron"), ("60 * * * *", "UTC", "cron"),
        ("@reboot", "UTC", "cron"), ("@Daily", "UTC", "cron"),
        ("@daily 0", "UTC", "cron"), ("@" + "x" * 300, "UTC", "cron"),
        ("*/0 * * * *", "UTC", "cron"), ("1" * 300 + " * * * *", "UTC", "cron"),
        ("* * * * *", "", "timezone"), ("* * * * *", "CET/CEST", "timezone"), ("* * * * *", "../UTC", "timezone"),
        ("* * * * *", "/etc/localtime", "timezone"), ("* * * * *", "localtime", "timezone"),
        ("* * * * *", "x" * 300, "timezone"),
    ],
)  # fmt: skip
def test_what_is_none_is_refused_by_its_field(cron, zone, field):
    with pytest.raises(Rejected) as refused:
        next(CALENDAR.instants(cron, zone, 0))
    assert refused.value.detail["field"] == field
    assert len(refused.value.message) < 300


ZONES = [
    "UTC",
    BERLIN,
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "America/Sao_Paulo",
    "Africa/Cairo",
]
CRONS = [
    "30 2 * * *",
    "*/17 * * * *",
    "0 0 * * 1-5",
    "15 1,2,3 * * *",
    "0 */5 1,15 * *",
    "59 23 L * *",
    "0 2 * 3,10 0",
]


@pytest.mark.rule("Q4.20")
@given(
    cron=st.sampled_from(CRONS),
    zone=st.sampled_from(ZONES),
    after_ms=st.integers(ms("2015-01-01T00:00"), ms("2030-01-01T00:00")),
)
def test_from_wherever_it_is_asked_the_instants_are_the_same(cron, zone, after_ms):
    """Ascending, later than what was asked, on full minutes; asking from one of them goes on behind it."""
    instants = list(islice(CALENDAR.instants(cron, zone, after_ms), 6))

    assert after_ms < instants[0]
    assert all(one < other for one, other in pairwise(instants))
    assert all(instant % 60_000 == 0 for instant in instants)
    for at, instant in enumerate(instants[:-1]):
        assert next(CALENDAR.instants(cron, zone, instant)) == instants[at + 1]
        assert next(CALENDAR.instants(cron, zone, instant - 1)) == instant


@given(day=st.dates(date(2015, 1, 1), date(2030, 1, 1)), zone=st.sampled_from(ZONES))
def test_a_named_time_comes_once_each_local_day(day, zone):
    where = ZoneInfo(zone)
    start = datetime(day.year, day.month, day.day, tzinfo=where)
    stop = start + timedelta(days=30)
    start_ms, stop_ms = (int(one.timestamp() * 1000) for one in (start, stop))
    days = []
    for instant_ms in CALENDAR.instants("30 2 * * *", zone, start_ms - 1):
        if instant_ms >= stop_ms:
            break
        days.append(datetime.fromtimestamp(instant_ms / 1000, where).date())

    assert days == [day + timedelta(days=n) for n in range(30)]
