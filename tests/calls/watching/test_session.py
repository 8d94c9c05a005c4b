"""A watch at a server: each record once and each loss once, wherever and however often its connections break."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topics
from tests.calls.watching.streams import URL, Frame, History, lost, records, tombstone, watched
from topics.calls.retry import HttpAnswer, Send
from topics.kernel.errors import TopicsError

FRAMES = [
    records("a", 1, 2, 3), Frame("a", "caught-up", 3, {"head_seq": 3, "durable_seq": 0}), records("b", 1),
    tombstone("b", 2, 5), records("a", 4), tombstone("a", 5, 9, reason="from_seq_too_old", cause="ttl"),
    records("b", 6, 7), records("a", 12, 14),
]  # fmt: skip
EXPECTED = {
    "a": [1, 2, 3, 4, (5, 9, "ttl"), 12, 14, "gone"],
    "b": [1, (2, 5, "cap"), 6, 7, "gone"],
}


def told(values: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for value in values:
        match value:
            case topics.WatchedRecord(topic=topic, seq=seq):
                assert value.data == f"{topic}{seq}"
                found.setdefault(topic, []).append(seq)
            case topics.Tombstone():
                assert isinstance(value, topics.Gap)
                found[value.topic].append((value.gap_from, value.gap_to, value.reason.value))
            case topics.TopicDeleted():
                found.setdefault(value.topic, []).append("gone")
    return found


def test_it_gives_everything_in_order_and_ends_with_its_topics() -> None:
    history = History(FRAMES)
    values, cursors = watched(history, "a", "b", match="x", node=["n"], include_data=False)

    assert told(values) == EXPECTED
    assert [value.head_seq for value in values if isinstance(value, topics.CaughtUp)] == [3]
    assert history.ids == [""]
    assert history.posts == [{
        "topics": {"a": {"from_seq": 0}, "b": {"from_seq": 0}}, "consistency": "eventual", "include_tags": True,
        "include_meta": True, "include_data": False, "match": "x", "node": ["n"],
    }]  # fmt: skip
    assert cursors.positions() == {"a": {"from_seq": 14, "epoch": 1}, "b": {"from_seq": 7, "epoch": 1}}


@given(st.lists(st.integers(0, 3000), max_size=12), st.frozensets(st.integers(1, 12)))
def test_each_once_wherever_connections_break(cuts: list[int], forgets: frozenset[int]) -> None:
    values, _ = watched(History(FRAMES, cuts, forgets), "a", "b")

    assert told(values) == EXPECTED


def test_a_break_at_every_single_byte() -> None:
    for cut in range(0, 2500, 4):
        values, _ = watched(History(FRAMES, [cut]), "a", "b")

        assert told(values) == EXPECTED
        assert len([value for value in values if isinstance(value, topics.CaughtUp)]) == 1


def test_its_positions_at_any_moment_are_where_another_one_goes_on() -> None:
    for count in range(11):
        first, cursors = watched(History(FRAMES), "a", "b", count=count)
        second, _ = watched(History(FRAMES), json.loads(json.dumps(cursors.positions())))

        assert len(first) == count
        assert told(first + second) == EXPECTED


def test_it_comes_again_by_the_last_id_and_without_one_by_another_session() -> None:
    history = History(FRAMES, [20, 500])
    watched(history, "a", "b")

    assert [bool(last) for last in history.ids] == [False, False, True]
    assert len(history.posts) == 2


class Saying(History):
    """Instead of the first stream it says this, and instead of the second session it answers `again`."""

    def __init__(self, said: bytes, *again: HttpAnswer | TopicsError) -> None:
        super().__init__(FRAMES)
        self.said, self.again = said, list(again)

    def answer(self, step: Any) -> Any:
        if isinstance(step, Send):
            is_first = not self.posts or (step.request.method == "GET" and not self.opened)
            if not is_first and self.again:
                again = self.again.pop(0)
                if isinstance(again, TopicsError):
                    raise again
                return again
            if self.posts and not self.opened and self.said:
                self.opened += 1
                self.stream = iter([self.said])
                return HttpAnswer(200, b"")
        return super().answer(step)


def error(**fields: Any) -> bytes:
    return b"event: error\ndata: " + json.dumps(fields).encode() + b"\n\n"


@pytest.mark.parametrize(
    "reason", ["slow_consumer", "shutting_down", "session_expired", "superseded", "later_word"]
)
def test_an_error_that_ends_a_stream_is_taken_up_behind(reason: str) -> None:
    history = Saying(error(code=503, error="why", reason=reason))

    assert told(watched(history, "a", "b")[0]) == EXPECTED


def test_advice_ends_nothing() -> None:
    history = Saying(error(code=429, error="slow", reason="throttled", retry_after_ms=5, topics=["a"]))

    assert told(watched(history, "a", "b")[0]) == EXPECTED


def test_a_topic_that_cannot_be_read_is_an_error_that_says_how_to_go_on() -> None:
    detail = {"topic": "a", "files": ["x.data"], "next_from_seq": 9}
    with pytest.raises(topics.Corrupt, match="damaged") as failed:
        watched(
            Saying(error(code=500, error="damaged", reason="internal", topics=["a"], detail=detail)), "a", "b"
        )
    assert failed.value.detail["next_from_seq"] == 9


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (403, "forbidden", topics.Rejected),
        (401, "unauthorized", topics.Rejected),
        (400, "invalid_request", topics.Rejected),
    ],
)
def test_what_does_not_pass_is_raised_with_the_servers_words(
    status: int, code: str, kind: type[Exception]
) -> None:
    refusal = HttpAnswer(status, json.dumps({"error": {"code": code, "message": "its own words"}}).encode())
    with pytest.raises(kind, match="its own words"):
        watched(Saying(error(code=503, error="", reason="session_expired"), refusal), "a")
    with pytest.raises(kind, match="its own words"):
        watched(Saying(b": hb\n\n", refusal), "a")


@pytest.mark.parametrize("times", [1, 500])
@pytest.mark.parametrize(
    "said", [b": hb\n\n", b"event: new\nid: e30\ndata: {}\n\n"], ids=["by another session", "by its id"]
)
def test_a_server_that_is_away_is_waited_for_which_is_told_once(
    times: int, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    history = Saying(said, *[lost() for _ in range(times)])

    assert told(watched(history, "a", "b")[0]) == EXPECTED
    assert caplog.messages == [f"{URL}: lost; trying again until it is there", f"{URL} is there again"]


def test_a_topic_that_is_gone_when_it_comes_again_was_deleted() -> None:
    there = {"b": {"from_seq": 0, "head_seq": 99, "earliest_seq": 1, "epoch": 1}}
    again = HttpAnswer(200, json.dumps({"wid": "wid_1", "topics": there}).encode())
    history = Saying(b": hb\n\n", again)

    assert told(watched(history, "a", "b")[0]) == EXPECTED | {"a": ["gone"]}


def test_what_is_told_twice_is_given_once_and_what_was_passed_is_passed() -> None:
    passed = attrs.evolve(records("a", 6), to=9)
    passed.fields["to_seq"] = 9
    again = [attrs.evolve(tombstone("a", 2, 5), to=8), attrs.evolve(records("a", 1, 6), to=9)]
    values, cursors = watched(History([records("a", 1), tombstone("a", 2, 5), *again, passed]), "a")

    assert told(values) == {"a": [1, (2, 5, "cap"), 6, "gone"]}
    values, cursors = watched(History([passed]), "a")
    assert cursors.positions() == {"a": {"from_seq": 9, "epoch": 1}}


def test_a_topic_made_anew_is_read_from_its_beginning_and_so_is_it_again_later() -> None:
    anew = tombstone("a", 1, 3, reason="recreated", epoch=2)
    values, cursors = watched(
        History([records("a", 1, 2), attrs.evolve(anew, to=3), records("a", 4)]), "a", count=3
    )

    assert told(values) == {"a": [1, 2, (1, 3, "recreated")]}
    assert cursors.positions() == {"a": {"from_seq": 0, "epoch": 2}}


@pytest.mark.parametrize(
    "data",
    [b"{", b'{"topic":"a"}', b'{"topic":"a","records":[{}],"to_seq":1,"head_seq":1}', b"\xff", b"[" * 5000],
)
def test_what_no_server_of_ours_says_ends_it(data: bytes) -> None:
    with pytest.raises(topics.Unreachable, match="this is no topics server: an event is not of its form"):
        watched(Saying(b"event: record\ndata: " + data + b"\n\n"), "a")


def test_what_a_later_server_says_is_left_out() -> None:
    unknown = b'{"topic":"z","head_seq":1,"durable_seq":1,"x":1}'
    later = b"event: weather\ndata: fine\n\nevent: caught-up\ndata: " + unknown + b"\n\n"

    assert told(watched(Saying(later), "a", "b")[0]) == EXPECTED


@given(st.lists(st.integers(0, 3000), max_size=12), st.frozensets(st.integers(1, 12)))
def test_what_is_committed_before_it_is_given_is_given_once_wherever_connections_break(
    cuts: list[int], forgets: frozenset[int]
) -> None:
    history = History(FRAMES, cuts, forgets)
    given = watched(history, {"a": {"consumer": "c"}, "b": {}}, auto_commit=True)[0]

    assert told(given) == EXPECTED
    assert history.posts[0]["topics"] == {"a": {"consumer": "c"}, "b": {"from_seq": 0}}
    assert history.commits == [3, 4, 9, 14]


def test_all_that_is_given_has_been_committed() -> None:
    for count in range(11):
        history = History(FRAMES)
        given = watched(history, {"a": {"consumer": "c"}, "b": {}}, count=count, auto_commit=True)[0]

        seqs = [
            seq[1] if isinstance(seq, tuple) else seq for seq in told(given).get("a", []) if seq != "gone"
        ]
        assert max(seqs, default=0) <= max(history.commits, default=0)


class Refusing(History):
    """It answers a commit with this; the first one, if there are several, is lost on its way."""

    refusal = HttpAnswer(404, b'{"error":{"code":"topic_not_found","message":"its own words"}}')

    def committed(self) -> HttpAnswer:
        if len(self.commits) == 1:
            raise lost()
        return self.refusal


def test_what_could_not_be_committed_is_not_given() -> None:
    history = Refusing(FRAMES)
    given = watched(history, {"a": {"consumer": "c"}, "b": {}}, auto_commit=True)[0]

    assert history.commits == [3, 3]
    assert told(given) == {"a": ["gone"], "b": EXPECTED["b"]}
    history.refusal = HttpAnswer(404, b'{"error":{"code":"consumer_not_found","message":"its own words"}}')
    with pytest.raises(topics.Rejected, match="its own words"):
        watched(history, {"a": {"consumer": "c"}, "b": {}}, auto_commit=True)


def test_a_commit_by_hand_is_of_what_was_given_and_of_the_instance_that_it_was_of() -> None:
    anew = attrs.evolve(tombstone("a", 1, 3, reason="recreated", epoch=2), to=5)
    frames = [records("a", 1, 2, 3), tombstone("a", 4, 4), anew, records("a", 6)]
    committed = []
    for count in range(7):
        _, cursors = watched(History(frames), {"a": {"consumer": "c"}}, count=count)
        committed.append([(commit.seq, commit.epoch) for commit in cursors.commits()])
        assert not list(cursors.commits())

    assert committed == [[], [(1, 1)], [(2, 1)], [(3, 1)], [(4, 1)], [(0, 2)], [(6, 2)]]


def test_it_goes_on_from_a_consumer_until_it_is_begun() -> None:
    starts: dict[str, Any] = {
        "a": {"consumer": "c", "epoch": 7},
        "b": {"tail": True, "epoch": 6},
        "c": {"tail": True},
    }
    _, cursors = watched(History(FRAMES), starts, count=0)
    assert cursors.positions() == starts
    _, cursors = watched(History(FRAMES), {"a": {"consumer": "c"}, "b": {}}, count=1)
    assert cursors.positions() == {"a": {"from_seq": 1, "epoch": 1}, "b": {"from_seq": 0, "epoch": 1}}
    with pytest.raises(topics.Rejected, match="this watch has none"):
        list(watched(History(FRAMES), "a", count=1)[1].commits())


def test_a_topic_that_cannot_be_read_for_another_reason_is_an_error_in_the_servers_words() -> None:
    with pytest.raises(topics.Rejected, match="its own words") as failed:
        watched(Saying(error(code=403, error="its own words", reason="forbidden", topics=["a"])), "a", "b")
    assert failed.value.code == "forbidden"
