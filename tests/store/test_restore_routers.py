"""A restore to a moment, or a seq, of what routers copied: no copy is without its record, and none is left out."""

from __future__ import annotations

import random

import pytest

from tests.support.history import TINY, archiving, backed_up, rebuilt
from tests.support.scene import SMALL, Scene
from topics.engine.commands import DeleteRouter, PutRouter
from topics.host.directory.layout import read_format
from topics.host.directory.readstate import read_state
from topics.kernel.errors import Rejected
from topics.log.reads.match import parse_match
from topics.store.opening import open_store
from topics.store.orders import next_order

ROUTERS = (("a", "b", None), ("a", "c", "red"), ("a", "d", None), ("c", "far", None))
CAPPED = "d"


def catalog_of(disk):
    found = read_state(disk, read_format(disk, "x"), same_boot=False).recovered
    assert not found.read_only
    return found.catalog


class Copied:
    """A store with routers, all that each topic ever held, and the base of a backup from before most of it."""

    def __init__(self, shards, seed):
        self.scene = scene = archiving(shards=shards)
        self.random = random.Random(seed)
        self.ever, self.serial = {}, 0
        for name in ("a", "b", "c", "d", "far"):
            scene.create(name, **({"cap_records": 6} if name == CAPPED else {}))
        by_shard = {}  # a dest in each, that has nothing but copies
        while len(by_shard) < shards:
            name = f"e{scene.engine.state.next_topic_id}"
            scene.create(name)
            by_shard.setdefault(scene.engine.state.lanes_by_name[name].shard, name)
        self.plain = tuple(by_shard.values())
        for source, dest, match in (*ROUTERS, *(("a", name, None) for name in self.plain)):
            given = None if match is None else parse_match(match, tag_bytes_max=256)
            scene.run(PutRouter(router=f"{source}>{dest}", source=source, dest=dest, filter=given))
        self.step("put")
        self.settle()
        self.base = backed_up(scene)
        self.start = scene.engine.now_ms()

    def step(self, verb):
        """Something happens, mostly in the millisecond of what was before."""
        scene, rng = self.scene, self.random
        if verb == "put":
            count = rng.randrange(1, 4)
            datas = [b"%d" % (self.serial + i) for i in range(count)]
            self.serial += count
            scene.put("a", *datas, tag=[rng.choice((b"red", b"")) for _ in datas])
        elif verb == "own":
            scene.put(rng.choice(("b", "far")), b"%d" % self.serial)
            self.serial += 1
        elif verb == "delete":
            scene.delete("c", before_seq=rng.randrange(1, scene.state("c").head_seq + 2))
        elif verb == "again":
            scene.run(DeleteRouter(router="a>b"))
            scene.run(PutRouter(router="a>b", source="a", dest="b"))
        elif verb == "settle":
            self.settle()
        else:
            scene.clock.advance(rng.randrange(1, 3))
        self.look()

    def settle(self):
        self.scene.sync()
        self.scene.move(2)
        self.look()

    def look(self):
        for name in self.scene.engine.names():
            self.ever.setdefault(name, {}).update(self.scene.read(name))


def went_on(disk, now_ms):
    """Opened as a restore does, which takes nothing for lost that its goal left out."""
    scene = Scene(9, disk=disk, limits=SMALL, segments=TINY)
    scene.clock.set(now_ms)
    scene.opened = open_store(
        disk, scene.clock, scene.entropy, where="x", machine_restarted=False, confirm=lambda _: None,
        options=scene.options,
    )  # fmt: skip
    scene.sync()
    scene.move(20)
    return scene


def check(copied, restored):
    """As it is restored, and when its routers have gone on."""
    catalog = catalog_of(restored)
    heads = {topic.name: topic.head_seq for topic in catalog.topics.values()}
    for name, router in catalog.routers.items():
        source, dest = (name_of(catalog, one) for one in (router.source_id, router.dest_id))
        assert catalog.topics[router.dest_id].inbound[router.id].cursor <= heads[source], (name, dest)
    scene = went_on(restored, copied.scene.clock.now_ms())
    for name, head_seq in heads.items():  # what was there has the seqs that it had
        found = {seq: data for seq, data in scene.read(name).items() if seq <= head_seq}
        assert found.items() <= copied.ever[name].items(), name
    for name, router in scene.engine.state.catalog.routers.items():
        source, dest = (name_of(catalog, one) for one in (router.source_id, router.dest_id))
        assert scene.engine.routers.state(name).lag == 0
        there = list(scene.read(dest).values())
        wanted = [one.data for one in scene.page(source)[1] if router.filter is None or one.tag == b"red"]
        assert len(there) == len(set(there)), name  # nothing comes twice
        assert [one for one in there if one in wanted] == [one for one in wanted if one in there], name
        if dest in copied.plain:
            assert there == wanted, name
        if dest == CAPPED:
            assert there == wanted[-6:], name
    return heads


def name_of(catalog, topic_id):
    return catalog.topics[topic_id].name


VERBS = ("put", "put", "put", "own", "delete", "again", "settle", "settle", "time", "time", "time")


@pytest.mark.rule("T7.3", "S8.1")
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", range(2))
def test_to_every_moment(shards, seed):
    copied = Copied(shards, seed)
    for _ in range(20):
        copied.step(copied.random.choice(VERBS))
    copied.settle()
    seen = set()
    for moment in range(copied.start, copied.scene.engine.now_ms() + 1):
        restored = rebuilt(copied.base, [copied.scene.disk], until_ms=moment)
        seen.add(tuple(check(copied, restored).values()))

    assert len(seen) > 2


@pytest.mark.rule("T7.3", "S8.1")
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", range(4, 6))
def test_to_every_seq_of_source_and_dests(shards, seed):
    copied = Copied(shards, seed)
    for _ in range(25):
        copied.step(copied.random.choice(VERBS))
    copied.settle()
    seen = set()
    for name in ("a", "b", "c", "far"):
        for seq in range(1, copied.scene.state(name).head_seq + 1):
            try:
                restored = rebuilt(copied.base, [copied.scene.disk], seqs={name: seq})
            except Rejected:  # the backup holds it
                continue
            seen.add(tuple(check(copied, restored).values()))

    assert len(seen) > 3


def apart():
    """A store of three shards, and of each the name of a topic in it; its backup."""
    scene = archiving(shards=3)
    names = {}
    while len(names) < 3:
        name = f"t{scene.engine.state.next_topic_id}"
        scene.create(name)
        names[scene.engine.state.lanes_by_name[name].shard] = name
    return scene, names, backed_up(scene)


@pytest.mark.rule("T7.3", "S8.2")
def test_a_router_is_not_kept_without_the_records_that_it_begins_behind():
    scene, names, base = apart()
    source, other = names[1], names[2]
    scene.clock.advance(5)
    scene.put(source, b"1", sync=True)
    scene.run(PutRouter(router="r", source=source, dest="copy"))
    scene.put(other, b"2")
    for goal in ({"seqs": {other: 0}}, {"until_ms": scene.clock.now_ms()}):
        restored = rebuilt(base, [scene.disk], **goal)
        again = went_on(restored, scene.clock.now_ms())
        if "r" in again.engine.state.catalog.routers:
            assert again.state(source).head_seq == 1
        else:
            again.run(PutRouter(router="r", source=source, dest="copy"))
        again.put(source, b"3")
        again.sync()
        again.move(5)

        assert list(again.read("copy").values()) == [b"3"]


@pytest.mark.rule("T7.3", "S8.1")
@pytest.mark.parametrize("shard", [0, 1])
@pytest.mark.parametrize("of_topic", [False, True])
def test_the_end_of_a_router_is_not_kept_without_what_it_had_copied(of_topic, shard):
    scene, names, base = apart()
    source, dest, other = names[shard], names[2], names[1] + "x"
    scene.run(PutRouter(router="r", source=source, dest=dest))
    scene.clock.advance(20)
    scene.put(source, b"1", sync=True)
    scene.write()
    while (steps := next_order(scene.engine, scene.opened.reader.read)) is not None:
        scene.carry(steps)
    assert list(scene.read(dest).values()) == [b"1"]
    if of_topic:
        scene.drop(source)
    else:
        scene.run(DeleteRouter(router="r"))
    scene.create(other)  # in whichever shard: behind all that in the log of shard 0
    scene.put(other, b"2")
    restored = rebuilt(base, [scene.disk], seqs={other: 0})
    again = went_on(restored, scene.clock.now_ms())

    assert list(again.read(dest).values()) == [b"1"]
