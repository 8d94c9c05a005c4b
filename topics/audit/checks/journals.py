"""Journals of databases and Weavers: what their records say of each other (replication 3 and 5).

They lie in internal topics, an item a record. Whether they can be folded is asked of the code that opens them; that the
order in which changes meet makes no difference is tried: joins once more in the other order, intentions once more as
they would arrive from a peer, newest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final

from topics.audit.checks.records import name_ranges, out_of_reach, read_records, why_out_of_reach
from topics.audit.recovery import RecoveredDirectory
from topics.audit.scan.rows import Severity, Violation
from topics.codec.cell import decode_cell, encode_cell
from topics.crypto.keys import KeyPair
from topics.host.directory.layout import topic_dir
from topics.kernel.errors import Corrupt, Rejected
from topics.kernel.ports import Disk
from topics.kv.entries.store import store_to_cell
from topics.kv.journaled import replay as replay_database
from topics.log.topic import Topic
from topics.weaver.graph.effective import EffectiveClock
from topics.weaver.model.bounds import DEFAULT
from topics.weaver.model.envelope import Envelope
from topics.weaver.state.ops import MACHINES
from topics.weaver.state.projection import open_state
from topics.weaver.store.intention_store import open_store
from topics.weaver.store.journal_items import ItemKind, JournalHeader, unpack
from topics.weaver.store.replay import Replay, SignatureCheck

KV_PREFIX: Final = "$kv."
KV_BY_NAME: Final = "$kv.name."  # a database whose name fits a topic's; others are named by a hash
WEAVER_PREFIX, WEAVER_SUFFIX = "$weaver.", ".log"
BLOCK: Final = 2000  # intentions that are handed over the other way round: so many may wait for each other
Finder = Callable[[list[bytes], Topic], str]
_SEED: Final = bytes(32)  # of the node that tries it, which signs for nobody


def check_journals(disk: Disk, state: RecoveredDirectory) -> Iterator[Violation]:
    """Every journal that is in internal topics of the state. `disk` reads the cold tier, too, if the state has one."""
    for topic_id, topic in sorted(state.topics.items()):
        if topic.name.startswith(KV_PREFIX):
            check, find = "kv.journal", _wrong_with_database
        elif topic.name.startswith(WEAVER_PREFIX) and topic.name.endswith(WEAVER_SUFFIX):
            check, find = "weaver.journal", _wrong_with_weaver
        else:
            continue
        if away := out_of_reach(topic, state.cold):
            detail = f"{name_ranges(away)} of the journal are in the cold tier, and nobody has read them: "
            detail += why_out_of_reach(state.cold)
            where = topic_dir(topic_id)
            yield Violation(topic.name, where, check, Severity.UNDECIDABLE, away[0][0], None, detail)
            continue
        seq, detail = _try(disk, topic, find)
        if detail:
            yield state.violation(topic_id, topic_dir(topic_id), check, seq, None, detail)


class ItemJournal:
    """`kernel.ports.Journal` over a list."""

    def __init__(self, items: Sequence[bytes]) -> None:
        self.items = list(items)

    def append(self, items: Sequence[bytes]) -> None:
        self.items += items

    def read(self) -> Iterator[bytes]:
        return iter(list(self.items))


class _StillClock:
    """A clock that stands where the journal's newest item was written."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms


def _try(disk: Disk, topic: Topic, find: Finder) -> tuple[int | None, str]:
    seqs: list[int] = []
    try:
        items = []
        for view in read_records(disk, topic):
            seqs.append(view.seq)
            items.append(view.data)
        lost = next((lost for lost in topic.index.lost if not seqs or lost.last > seqs[0]), None)
        if lost is not None:
            return lost.first, f"seqs {lost.first} to {lost.last} of the journal are lost ({lost.reason})"
        return None, find(items, topic) if items else ""
    except (Corrupt, Rejected) as damage:
        number, seq = damage.detail.get("item"), damage.detail.get("seq")
        if isinstance(number, int) and number - _FIRST_ITEM[find] < len(seqs):
            return seqs[number - _FIRST_ITEM[find]], damage.message
        return seq if isinstance(seq, int) else None, damage.message


# Databases.


def _wrong_with_database(items: list[bytes], topic: Topic) -> str:
    """Whose it says it is; folded as it is, and with the joins between two other items in the other order."""
    store, *_ = replay_database(ItemJournal(items))
    _check_openings(items, topic.name.removeprefix(KV_BY_NAME) if topic.name.startswith(KV_BY_NAME) else None)
    turned: list[bytes] = []
    for joins, group in groupby(items, key=_is_join):
        some = list(group)
        turned += reversed(some) if joins else some
    other, *_ = replay_database(ItemJournal(turned))
    if encode_cell(store_to_cell(store)) != encode_cell(store_to_cell(other)):
        return "its changes give another state when they meet in another order"
    return ""


def _check_openings(items: list[bytes], wanted: str | None) -> None:
    """A journal begins by saying whose it is, and is of one database, the one its topic is named after, if it is."""
    for number, item in enumerate(items):
        match decode_cell(item):
            case ("open", _, str(name), _, _):
                wanted = wanted or name
                if name != wanted:
                    why = f"database journal, item {number}: it is of {name!r}, and the journal is of {wanted!r}"
                    raise Corrupt(why, item=number)
            case _ if number == 0:
                raise Corrupt("database journal, item 0: it does not say whose journal it is", item=0)


def _is_join(item: bytes) -> bool:
    match decode_cell(item):
        case ("change", _, down):
            return not down
    return False


# Weavers.


def _wrong_with_weaver(items: list[bytes], topic: Topic) -> str:
    """Every hash, link and signature; then what a peer makes of the same intentions, in two orders."""
    now_ms = topic.last_write_ts
    kind, payload = unpack(items[0])
    if kind is not ItemKind.HEADER:
        raise Corrupt(f"Weaver journal, item 1: {kind.name} where the header belongs", item=1)
    header = JournalHeader.decode(payload)
    effective = EffectiveClock(DEFAULT.drift_ms)
    effective.advance(now_ms)
    replay = Replay(header, DEFAULT, effective, SignatureCheck.EVERY)
    replay.run(items[1:])
    if replay.settlement is not None or header.kind not in MACHINES:
        return ""  # what was pruned cannot be handed over again
    envelopes = [node.envelope for node in replay.graph.nodes.values()]
    forth = _of_peer(header, envelopes, now_ms)
    back = _of_peer(header, _turned(envelopes), now_ms)
    if forth[0] != replay.fingerprint:
        return "a peer that is handed its intentions does not witness the same ones"
    return "" if forth == back else "its intentions give another state when they arrive in another order"


def _turned(envelopes: list[Envelope]) -> list[Envelope]:
    blocks = [envelopes[at : at + BLOCK] for at in range(0, len(envelopes), BLOCK)]
    return [envelope for block in blocks for envelope in reversed(block)]


def _of_peer(header: JournalHeader, envelopes: list[Envelope], now_ms: int) -> tuple[int, bytes]:
    """Fingerprint and digest of the state of a node that is handed these intentions."""
    node, clock = KeyPair.from_seed(_SEED), _StillClock(now_ms)
    store = open_store(ItemJournal(()), store_id=header.store_id, node=node, clock=clock, kind=header.kind)
    for at in range(0, len(envelopes), BLOCK):
        store.ingest(envelopes[at : at + BLOCK])
    return store.fingerprint_int, open_state(store, ItemJournal(())).digest()


_FIRST_ITEM: Final[dict[Finder, int]] = {_wrong_with_database: 0, _wrong_with_weaver: 1}
