"""A server as a place to read from, without Spark: which topics, how it is cut, and what of it is lost."""

import re
from contextlib import closing

import attrs
import pytest

import topics
from tests.client.peer import Peer, answer
from tests.spark.stores import START_MS, opened
from topics.audit.columnar.arrow_batches import full_schema
from topics.audit.repair.offline import repair_directory
from topics.cli.demo.private_server import PrivateServer
from topics.client.key import KEY_VARIABLE
from topics.codec.log.layout import CHECKSUM_SIZE
from topics.host.segments.segment_seals import seal_of
from topics.host.system.readonly import ReadOnlyDisk
from topics.kernel.errors import Rejected
from topics.spark.options import read_options
from topics.spark.place import DELETED, DataLoss, Loss, Partition, ReadBounds, SeqRange, ranges_of_batch
from topics.spark.scan import ScanPlan, place_of
from topics.spark.server import ServerPlace, connected
from topics.testing.clock import ManualClock


@pytest.fixture
def plan(server):
    def make(**given):
        text = {"url": server.url, **given}
        options = read_options({key.lower(): str(value) for key, value in text.items()})
        how = ScanPlan(options=options, schema=full_schema(headers=False, internal=False, flagged=False))
        views.append(place_of(options).look())
        return how, views[-1]

    views = []
    yield make
    for view in views:
        view.close()


def seqs(how, view, bounds=None):
    return read(how, how.partitions(view, ranges_of_batch(view, how.options), bounds or ReadBounds()))


def read(how, partitions):
    return [
        seq
        for partition in partitions
        for batch in how.batches(partition)
        for seq in batch["offset"].to_pylist()
    ]


@pytest.mark.rule("P3.1", "P3.2", "P3.4")
def test_topics_by_name_or_pattern_are_read_in_as_many_parts_as_asked_for(plan, server, name):
    with topics.Client(server.url) as client:
        for part in "ab":
            client.topic(f"{name}.{part}").put_many([{"data": "x" * 50} for _ in range(2500)])

    how, view = plan(subscribePattern=f"{name}\\.[ab]", minPartitions="4")

    assert sorted(view.topics()) == [f"{name}.a", f"{name}.b"]
    partitions = how.partitions(view, ranges_of_batch(view, how.options), ReadBounds())
    assert len(partitions) >= 4
    assert sorted(seqs(how, view)) == sorted([*range(1, 2501)] * 2)
    with pytest.raises(Rejected, match="is not there"):
        how, view = plan(subscribe=f"{name}.c")
        ranges_of_batch(view, how.options)


@pytest.mark.rule("P3.5", "P3.12")
def test_bounds_and_losses_are_those_of_the_log(plan, server, name):
    with topics.Client(server.url) as client:
        topic = client.create(name, cap_records=100)
        topic.put_many([{"data": n} for n in range(150)])
        times = [item.ts for item in topic.read(from_seq=50, limit=100).records]
    strict, view = plan(subscribe=name, startingOffsets=f'{{"{name}": 1}}')
    lenient, _ = plan(subscribe=name, startingOffsets=f'{{"{name}": 1}}', failOnDataLoss="false")

    with pytest.raises(DataLoss, match=r"seqs 1 to 50 are lost \(cap\)"):
        seqs(strict, view)
    assert seqs(lenient, view) == list(range(51, 151))
    assert seqs(lenient, view, ReadBounds(seq_start=60, seq_stop=63)) == [60, 61, 62]
    assert seqs(lenient, view, ReadBounds(ts_ms_max=times[0] - 1)) == []
    assert list(view.losses(SeqRange(name, 1, 10, 40))) == [Loss(name, 10, 39, "cap")]
    assert list(view.losses(SeqRange(name, 1, 51, 151))) == []
    assert view.seq_at(name, times[0]) <= 51
    assert view.seq_at(name, times[-1] + 10_000) == 151


@pytest.mark.rule("P3.5")
def test_a_loss_that_a_repair_told_today_moves_no_time_of_older_records(tmp_path):
    data, clock = tmp_path / "data", ManualClock(START_MS)
    with opened(data, clock) as store:
        for number in range(50):
            store.topic("t").put(number)
            clock.advance(1000)
        store.sync()
        store.checkpoint()
    first = min(data.glob("topics/*/seg-*.data"))
    entries = entries_of(data, first)
    content = bytearray(first.read_bytes())
    content[entries.offsets[7] + entries.lengths[7] - CHECKSUM_SIZE - 1] ^= 1
    first.write_bytes(content)
    assert repair_directory(data).lost == {"t": [(8, 8)]}

    with PrivateServer(data, tmp_path) as server:
        for options in ({"path": str(data)}, {"url": server.url}):
            given = read_options({**options, "subscribe": "t"})
            with closing(place_of(given).look()) as view:
                found = [view.seq_at("t", START_MS + 1000 * at) for at in (0, 5, 8, 20, 49, 50)]
            assert found == [1, 6, 8, 21, 50, 51]  # what is lost in front of 9 may have been as late as 9


@pytest.mark.rule("P3.5")
def test_what_is_lost_directly_above_the_floor_is_told_with_what_is_lost_below_it(tmp_path):
    data = tmp_path / "data"
    with opened(data, segment_records=5) as store:
        store.create("t", cap_records=8).put_many(
            [{"data": n, "tag": "x" if n == 3 else None} for n in range(10)]
        )
        store.topic("t").delete(match="x")
        store.sync()
        store.checkpoint()
    first = min(data.glob("topics/*/seg-*.data"))
    entries = entries_of(data, first)
    content = bytearray(first.read_bytes())
    content[entries.offsets[0] + entries.lengths[0] - CHECKSUM_SIZE - 1] ^= 1
    first.write_bytes(content)
    assert repair_directory(data).lost == {"t": [(3, 3)]}

    with PrivateServer(data, tmp_path) as server:
        for options in ({"path": str(data)}, {"url": server.url}):
            given = read_options({**options, "subscribe": "t"})
            with closing(place_of(given).look()) as view:
                found = [(loss.first, loss.last) for loss in view.losses(SeqRange("t", 1, 1, 11))]
            assert found == [(1, 2), (3, 3)]  # 4 was deleted


@pytest.mark.rule("P3.5")
def test_a_topic_that_was_deleted_made_anew_or_put_back_since_the_plan_has_lost_what_was_planned(
    plan, server, name
):
    with topics.Client(server.url) as client:
        client.topic(name).put_many([{"data": n} for n in range(50)])
        strict, view = plan(subscribe=name)
        lenient, _ = plan(subscribe=name, failOnDataLoss="false")
        epoch = view.topics()[name].epoch
        ahead = lenient.partitions(
            view, [SeqRange(name, epoch, 41, 61)], ReadBounds()
        )  # a head that has been higher
        further = lenient.partitions(view, [SeqRange(name, epoch, 55, 61)], ReadBounds())
        partitions = strict.partitions(view, ranges_of_batch(view, strict.options), ReadBounds())

        assert read(lenient, ahead) == list(range(41, 51))
        assert read(lenient, further) == []
        with pytest.raises(DataLoss, match=r"seqs 51 to 60 are lost \(its head went back\)"):
            read(strict, ahead)
        with pytest.raises(DataLoss, match=r"seqs 55 to 60 are lost \(its head went back\)"):
            read(strict, further)
        client.delete(name)
        with pytest.raises(DataLoss, match=r"seqs 1 to 50 are lost \(the topic was deleted\)"):
            read(strict, partitions)
        assert read(lenient, partitions) == []
        assert list(view.losses(SeqRange(name, epoch, 1, 51))) == [Loss(name, 1, 50, DELETED)]
        client.topic(name).put_many([{"data": n} for n in range(10)])
        with pytest.raises(DataLoss, match=r"seqs 1 to 50 are lost \(recreated\)"):
            read(strict, partitions)
        assert read(lenient, partitions) == []


@attrs.frozen(kw_only=True)
class CountedPlace(ServerPlace):
    """A place that keeps every client that it has made."""

    clients: list = attrs.field(factory=list)

    def connected(self):
        self.clients.append(super().connected())
        return self.clients[-1]


def test_a_plan_takes_two_clients_and_a_time_filter_begins_where_its_records_do(server, name):
    names = tuple(f"{name}.{i}" for i in range(5))
    with topics.Client(server.url) as client:
        for each in names:
            client.topic(each).put_many([{"data": n} for n in range(1200)])
        client.topic(each).put_many([{"data": n} for n in range(1200)])
        first_ms = client.topic(each).read(from_seq=1200, limit=1).records[0].ts
        starts = [1 + sum(one.ts < first_ms for one in client.topic(each).records()) for each in names]
    options = read_options({"url": server.url, "subscribe": ",".join(names)})
    place = CountedPlace(url=server.url, token=None, topics=names)
    with closing(place.look()) as view:
        ranges = ranges_of_batch(view, options)
        late = ReadBounds(ts_ms_min=first_ms)
        parts = [part for wanted in ranges for part in view.parts(wanted, late, target_bytes=1 << 30)]
    assert len(place.clients) == 2
    assert starts[:2] == [1201, 1201]
    assert starts[4] <= 1201
    stops = [1201] * 4 + [2401]
    assert [(part.start, part.stop) for part in parts] == [
        (start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop
    ]
    how = ScanPlan(options=options, schema=full_schema(headers=False, internal=False, flagged=False))
    early = attrs.evolve(parts[-1], start=1)  # as where a loss makes the place of a time uncertain
    assert read(how, [Partition([early])]) == list(range(starts[-1], 2401))


@pytest.mark.rule("P3.1")
def test_a_token_is_used_and_not_shown_and_the_environment_counts_without_one(monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, "mine")
    with Peer(answer(200, b'{"topics":[]}')) as peer:
        place = place_of(read_options({"url": peer.url, "token": "s3cret", "subscribepattern": "a.*"}))
        with connected(peer.url, "s3cret") as client:
            client.list()
        with connected(peer.url, None) as client:
            client.list()

    keys = [re.findall(rb"(?i)authorization: bearer (\w+)", request) for request in peer.requests]
    assert keys == [[b"s3cret"], [b"mine"]]
    with pytest.raises(Rejected, match="what the token holds is no key"):
        connected(peer.url, "two words")
    assert "s3cret" not in repr(place)


def entries_of(data, file):
    """The idx beside a segment's data."""
    seal = seal_of(ReadOnlyDisk(data), int(file.parent.name, 16), int(file.stem.removeprefix("seg-")))
    return seal.idx(file.with_suffix(".idx").read_bytes())
