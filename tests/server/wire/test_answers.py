"""Answers as bytes."""

from topics.server.api.message import Answer
from topics.server.wire.answers import AnswerWriter


def test_beyond_the_year_2262_the_date_stands_still_and_answers_go_on():
    def beyond() -> float:
        raise OverflowError("timestamp too large to convert to C _PyTime_t")

    answer = AnswerWriter(beyond).encode(Answer(200, b"{}"), without_body=False, closes=False, old=False)

    assert answer.startswith(b"HTTP/1.1 200 ")
