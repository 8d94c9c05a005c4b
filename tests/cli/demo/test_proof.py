"""The demo's proof finds what is planted: a proof that cannot fail proves nothing."""

from __future__ import annotations

import pathlib

import topics
from topics.cli.demo.proof import WRITERS, AckedWrite, TopicProof, demo_payload, examine, records_in_write

ROWS = [b'{"row":%d}' % i for i in range(7)]


def live(
    directory: pathlib.Path, *, leave_out: int | None = None, alter: int | None = None
) -> list[AckedWrite]:
    """What the writers do, on one thread: eight writes; one of them may be promised and not made, or made wrongly."""
    acks = []
    with topics.open(directory) as store:
        for writer in WRITERS:
            store.create(writer.topic)
        topic = store.topic(WRITERS[0].topic)
        for number in range(8):
            records = [
                demo_payload(ROWS, writer=0, number=number, part=part)
                for part in range(records_in_write(number))
            ]
            if number == alter:
                records[-1] = records[-1][:-2] + b".5}}"
            if number == leave_out:
                head = topic.state().head_seq
                acks.append(AckedWrite(0, number, head + 1, head + len(records)))
                continue
            written = topic.put_many([topics.Raw(record) for record in records])
            acks.append(AckedWrite(0, number, written.first_seq or 0, written.last_seq or 0))
    return acks


def finding(directory: pathlib.Path, acks: list[AckedWrite]) -> TopicProof:
    with topics.open(directory) as store:
        (found,) = [found for found in examine(store, ROWS, acks) if found.topic == WRITERS[0].topic]
    return found


def test_what_was_kept_is_found_intact(tmp_path: pathlib.Path) -> None:
    acks = live(tmp_path)
    found = finding(tmp_path, acks)

    assert (
        found.intact_records
        == found.acked_records
        == found.head_seq
        == found.delivered
        == found.accounted
        == 20
    )
    assert (found.holes, found.torn_writes, found.foreign, found.unacked_writes) == (0, 0, 0, 0)
    assert finding(tmp_path, acks[:-1]).unacked_writes == 1


def test_a_promised_write_that_is_missing_is_found(tmp_path: pathlib.Path) -> None:
    found = finding(tmp_path, live(tmp_path, leave_out=5))

    assert found.intact_records < found.acked_records


def test_an_altered_record_is_found(tmp_path: pathlib.Path) -> None:
    found = finding(tmp_path, live(tmp_path, alter=6))

    assert found.intact_records == found.acked_records - 1
    assert found.foreign == 1


def test_a_hole_and_a_write_in_part_are_found(tmp_path: pathlib.Path) -> None:
    acks = live(tmp_path)
    with topics.open(tmp_path) as store:
        store.topic(WRITERS[0].topic).delete(before_seq=3)
    found = finding(tmp_path, acks)

    assert found.holes == 2
    assert found.torn_writes == 1
    assert found.accounted == 20
