"""Agreement: the same steps through the embedded store, and stage by stage under the ledger's eyes as in World, give
the same answers, pages, accounts and states (reliability 4)."""

from __future__ import annotations

import shutil
import tempfile

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.crash.sweep import PROCESS, Watched
from tests.support.scene import append, deletion, put_topic
from topics.embed.store import Store
from topics.engine.commands import DeleteTopic, PutMode
from topics.host.system.disk import OsDisk
from topics.kernel.errors import Rejected
from topics.kernel.limits import Limits
from topics.log.reads.diff import DiffQuery
from topics.log.reads.match import parse_match
from topics.store.opened import StoreOptions
from topics.store.opening import open_store
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.simdisk import SimDisk

LIMITS = Limits(wal_file_first=32_768, wal_file_max=65_536, wal_reserve=4096)
NAMES = st.sampled_from(["a", "b", "c"])
TAGS = st.sampled_from(["", "red", "green"])
MATCHES = st.sampled_from([None, "red", ["tag", "Glob", "gr*"], ["tag", "Glob", "*"]])
CONFIGS = st.fixed_dictionaries(
    {
        "durability": st.sampled_from(["ephemeral", "memory", "disk", "fsync"]),
        "cap_records": st.sampled_from([0, 0, 3, 10]),
        "ttl_ms": st.sampled_from([0, 0, 1500]),
        "discard": st.sampled_from(["old", "reject"]),
        "dedup_window_ms": st.sampled_from([500, 120_000]),
    }
)
SOME_FIELDS = CONFIGS.flatmap(
    lambda config: st.sets(st.sampled_from(sorted(config))).map(
        lambda names: {name: config[name] for name in names}
    )
)
RECORD = st.fixed_dictionaries(
    {"tag": TAGS, "node": st.sampled_from(["", "n1"]), "dedup_id": st.sampled_from(["", "", "x", "y"])},
)


class Embedded:
    """The embedded store, without its housekeeping thread, on a clock that stands still; on either kind of disk."""

    def __init__(self, clock, *, real):
        self.clock = clock
        self.root = tempfile.mkdtemp(prefix="topics-agreement-") if real else None
        self.disk = SimDisk(2)
        self.open()

    def open(self):
        if self.root is not None:
            self.disk = OsDisk(self.root)
        opened = open_store(
            self.disk, self.clock, SeededEntropy(0), where="here", machine_restarted=False, confirm=lambda _: None,
            options=StoreOptions(shards=2, checking=True, min_free_bytes=4096, limits=LIMITS),
        )  # fmt: skip
        self.engine = opened.engine
        self.store = Store(opened, self.disk, housekeeping=False)

    def end(self):
        if self.root is None:
            self.disk.process_death()
        else:
            self.disk.close()

    def remove(self):
        self.store.close()
        self.end()
        if self.root is not None:
            shutil.rmtree(self.root)


class Simulated(Watched):
    """The same engine and writers, driven by stages; each answer and page is checked by the ledger too."""

    def __init__(self, clock):
        super().__init__(SimDisk(1), shards=2, limits=LIMITS)
        self.clock = clock
        self.begin()
        self.open()
        self.replies = []

    def answer(self, asked):
        tickets = {key: ticket for key, (ticket, _) in asked.items()}
        super().answer(asked)
        self.replies += [ticket for key, ticket in tickets.items() if key not in asked]

    def ask(self, command, *, sync=False):
        self.replies.clear()
        self.do(command, sync=sync)
        return self.replies[0].result()

    def time_passes(self, name):
        due = self.engine.read_due(name)
        if due is not None:
            self.do(due)


def outcome(act):
    """What an act gives: its value, or the code it is refused with, and the field."""
    try:
        return act()
    except Rejected as refused:
        return f"{refused.code.value} {refused.detail.get('field', '')}"


def said(reply):
    """An answer to a write without what depends on when the last timed sync was."""
    if isinstance(reply, str):
        return reply
    names = (
        "seqs",
        "first_seq",
        "last_seq",
        "head_seq",
        "count",
        "duplicates",
        "created",
        "deduped",
        "same_body",
    )
    return [list(value) if isinstance(value := getattr(reply, name), range) else value for name in names]


class Agreement(RuleBasedStateMachine):
    real = False

    @initialize()
    def begin(self):
        self.clock = ManualClock()
        self.embedded, self.simulated = Embedded(self.clock, real=self.real), Simulated(self.clock)
        self.number = 0

    def teardown(self):
        if hasattr(self, "embedded"):
            self.embedded.remove()

    def agree(self, one, other, wish):
        """Both give the same. `wish`: the same as a call of a third (`models.test_agreement_served`)."""
        first, second = outcome(one), outcome(other)
        assert first == second
        return first

    @rule(
        name=NAMES,
        records=st.lists(RECORD, min_size=1, max_size=4),
        key=st.sampled_from([None, None, "k"]),
        sync=st.booleans(),
    )
    def put(self, name, records, key, sync):
        datas = [b"%d" % (self.number + i) for i in range(len(records))]
        self.number += len(records)
        columns = {
            field: [record[field].encode() for record in records] for field in ("tag", "node", "dedup_id")
        }
        columns = {field: column if any(column) else None for field, column in columns.items()}
        given = [
            {"data": int(data), **{field: value for field, value in record.items() if value}}
            for data, record in zip(datas, records, strict=True)
        ]
        command = append(name, *datas, idempotency_key=None if key is None else key.encode(), **columns)
        self.agree(
            lambda: said(
                self.embedded.store.topic(name).put_many(
                    given, idempotency_key=key, require_same_body=False, sync=sync
                )
            ),
            lambda: said(self.simulated.ask(command, sync=sync)),
            ("put", name, given, key),
        )

    def restarted(self, *, clean):
        """For a third."""

    @rule(name=NAMES, config=CONFIGS)
    def replace(self, name, config):
        self.agree(
            lambda: self.embedded.store.topic(name).configure(replace=True, **config),
            lambda: self.simulated.ask(put_topic(name, **config)).config,
            ("replace", name, config),
        )

    @rule(name=NAMES, config=SOME_FIELDS)
    def configure(self, name, config):
        self.agree(
            lambda: self.embedded.store.topic(name).configure(**config),
            lambda: self.simulated.ask(put_topic(name, mode=PutMode.MERGE, **config)).config,
            ("configure", name, config),
        )

    @rule(name=NAMES, config=SOME_FIELDS)
    def create(self, name, config):
        self.agree(
            lambda: self.embedded.store.create(name, **config).state().config,
            lambda: self.simulated.ask(put_topic(name, mode=PutMode.CREATE, **config)).config,
            ("create", name, config),
        )

    @rule(name=NAMES, before_seq=st.none() | st.integers(0, 12), match=MATCHES)
    def delete(self, name, before_seq, match):
        self.agree(
            lambda: self.embedded.store.topic(name).delete(before_seq=before_seq, match=match),
            lambda: self.simulated.ask(deletion(name, before_seq=before_seq, match=match)),
            ("delete", name, before_seq, match),
        )

    @rule(name=NAMES, if_empty=st.booleans())
    def drop(self, name, if_empty):
        self.agree(
            lambda: self.embedded.store.delete(name, if_empty=if_empty),
            lambda: self.simulated.ask(DeleteTopic(topic=name, if_empty=if_empty)).deleted,
            ("drop", name, if_empty),
        )

    @rule(ms=st.sampled_from([1, 700, 1600, 130_000, -400]))
    def time(self, ms):
        self.clock.set(self.clock.now_ms() + ms)

    @rule(
        name=NAMES, from_seq=st.integers(0, 15), limit=st.sampled_from([1, 3, 1000]), match=MATCHES,
        node=st.sampled_from([None, "n1"]), epoch=st.sampled_from([None, 1, 2]),
    )  # fmt: skip
    def read(self, name, from_seq, limit, match, node, epoch):
        def embedded():
            page = self.embedded.store.topic(name).read(
                from_seq=from_seq, limit=limit, match=match, node=node, epoch=epoch, account=True
            )
            records = [(r.seq, r.ts, r.raw, r.tag, r.node) for r in page.records]
            return (
                records, page.epoch, page.from_seq, page.next_from_seq, page.head_seq, page.earliest_seq,
                page.tombstone, page.account, page.caught_up,
            )  # fmt: skip

        def simulated():
            self.simulated.time_passes(name)
            query = DiffQuery(
                topic=name, from_seq=from_seq, limit=limit, epoch=epoch,
                match=None if match is None else parse_match(match, tag_bytes_max=256),
                nodes=frozenset() if node is None else frozenset([node.encode()]),
            )  # fmt: skip
            scene = self.simulated
            state = scene.engine.topic_state(name)
            plan, views = scene.page(
                name, **{f: getattr(query, f) for f in ("from_seq", "limit", "epoch", "match", "nodes")}
            )
            scene.ledger.read(scene.engine, query, plan, views, state)
            records = [(v.seq, v.ts, v.data, v.tag.decode() or None, v.node.decode() or None) for v in views]
            return (
                records, plan.epoch, plan.from_seq, plan.next_from_seq, plan.head_seq, plan.earliest_seq,
                plan.gap, plan.account, plan.caught_up,
            )  # fmt: skip

        self.agree(
            embedded, simulated,
            ("read", name, {"from_seq": from_seq, "limit": limit, "match": match, "node": node, "epoch": epoch}),
        )  # fmt: skip

    @rule(clean=st.booleans())
    def restart(self, clean):
        if clean:
            self.embedded.store.close()
            self.simulated.engine.log_exact_heads()
            self.simulated.do()
        self.embedded.end()
        self.embedded.open()
        self.simulated.end(PROCESS, 0)
        self.simulated.open()
        self.restarted(clean=clean)

    @invariant()
    def states_agree(self):
        if not hasattr(self, "embedded"):
            return
        for name in ("a", "b", "c"):

            def simulated(name=name):
                self.simulated.time_passes(name)
                return fields(self.simulated.engine.topic_state(name))

            self.agree(
                lambda name=name: fields(self.embedded.store.topic(name).state()), simulated, ("state", name)
            )


def fields(state):
    names = (
        "topic type epoch head_seq earliest_seq evict_floor next_seq count bytes config last_write_ts".split()
    )
    return [getattr(state, name) for name in names]


class OnARealDisk(Agreement):
    real = True


Agreement.TestCase.settings = settings(stateful_step_count=25)
OnARealDisk.TestCase.settings = settings(stateful_step_count=15, max_examples=8)


@pytest.mark.rule("T3.32", "S1.1", "S2.4", "S2.19")
@pytest.mark.invariant("I-06", "I-17")
class TestAgreement(Agreement.TestCase):
    pass


class TestAgreementOnARealDisk(OnARealDisk.TestCase):
    pass
