"""Which states a crash may leave: for each shard any prefix of its writes that is not shorter than the synced one.

The oracle keeps the bytes of each write in the order they were handed to the disk and folds them itself, so it knows
nothing of files, marks or recovery. States are compared as `verify.canonical` writes them, topic by topic, because a
topic lives on one shard; names and epochs belong to shard 0, and so does what routers and schedules are.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from typing import Any

import attrs
import msgspec

from topics.codec.log.control import WriteResult
from topics.codec.log.forwards import Forward
from topics.codec.log.scan import scan
from topics.engine.apply import Catalog, CatalogView, apply
from topics.engine.batch import WalBatch, WalPosition
from topics.engine.verify import canonical
from topics.host.directory.layout import wal_path
from topics.kernel.ids import shard_of
from topics.log.regions import WalFileId
from topics.simulation.synced_bytes import SyncWatch

Facts = dict[str, Any]  # a topic, or the whole state, as msgpack gives it back
_NOWHERE = WalFileId(0, 0, 0)


class PromiseBroken(AssertionError):
    """A promise was broken. Says which, with what was expected and what was found."""


@attrs.frozen
class Unit:
    """One write, all or nothing, and where it was to go: bytes of `path` up to `stop`."""

    data: bytes
    path: str
    stop: int


class ShardWrites:
    """The writes of one shard since the last recovery. The first `written` of them were handed over whole."""

    __slots__ = ("units", "written")

    def __init__(self) -> None:
        self.units: list[Unit] = []
        self.written = 0

    def place(self, batch: WalBatch, at: WalPosition) -> list[int]:
        """A batch is on its way. Returns, entry by entry, how many units there are behind it."""
        offset, counts = at.offset, []
        path = wal_path(at.file)
        for entry in batch.entries:
            first = getattr(entry.items[0], "payload", None) if entry.items else None
            whole = isinstance(first, WriteResult | Forward)
            for data in [b"".join(entry.chunks)] if whole else entry.chunks:
                offset += len(data)
                self.units.append(Unit(data, path, offset))
            counts.append(len(self.units))
        assert offset == at.offset + batch.size
        return counts

    def durable(self, watch: SyncWatch) -> int:
        """How many of the first units a power cut now would leave for sure."""
        for count, unit in enumerate(self.units[: self.written]):
            if not watch.covers(unit.path, unit.stop):
                return count
        return self.written


def facts(catalog: CatalogView) -> Facts:
    """The state as plain values; `topics` by id."""
    state: Facts = msgspec.msgpack.decode(canonical(catalog))
    state["topics"] = {topic["id"]: topic for topic in state["topics"]}
    return state


def fold(catalog: Catalog, data: bytes) -> None:
    """Apply the frames of one write."""
    seen = scan(data, 0, len(data))
    assert seen.end == len(data), seen.defect
    for item in seen.items:
        apply(catalog, item, _NOWHERE)


def find_prefixes(
    base: Catalog,
    logs: Sequence[ShardWrites],
    found: Facts,
    *,
    at_least: Sequence[int],
    losses: bool,
    machine_restarted: bool,
    leased: Facts | None = None,
    longest: bool = False,
) -> list[int]:
    """How much of each shard survived. `losses`: an interrupted recovery may have logged some already, and
    marks of a checkpoint of its own. `leased`: jobs of topics by id, before the last recovery ended their leases. It
    says so in a frame that is not synced, which is the first to go with a shard's writes; the next one says it again.
    `longest`: what cannot be seen may have survived, too. A topic's writes cannot while its delete is in another
    shard's log, and a power cut may take that.

    Raises Violation if the state found is not one that a crash may leave.
    """
    state = copy.deepcopy(base)
    kept = []
    for shard, log in enumerate(logs):
        for unit in log.units[: at_least[shard]]:
            fold(state, unit.data)
        count = at_least[shard]
        while differs := _difference(
            facts(state), found, shard, len(logs), losses=losses, machine_restarted=machine_restarted,
            leased=leased if leased is not None and not count else {},
        ):  # fmt: skip
            if count == len(log.units):
                raise PromiseBroken(
                    f"shard {shard}: no prefix of {at_least[shard]}..{count} writes gives this state: {differs}"
                )
            fold(state, log.units[count].data)
            count += 1
        while longest and count < len(log.units):
            further = copy.deepcopy(state)
            fold(further, log.units[count].data)
            if _difference(
                facts(further),
                found,
                shard,
                len(logs),
                losses=False,
                machine_restarted=machine_restarted,
                leased={},
            ):
                break
            state, count = further, count + 1
        kept.append(count)
    return kept


def _difference(
    expected: Facts, found: Facts, shard: int, shards: int, *, losses: bool, machine_restarted: bool, leased: Facts
) -> str:  # fmt: skip
    """What makes one shard's part of two states differ; empty if nothing does."""
    if shard == 0:
        for name in ("next_topic_id", "epochs", "names"):
            if expected[name] != found[name]:
                return f"{name} {expected[name]!r:.200} != {found[name]!r:.200}"
        if (one := _schedules(expected)) != (other := _schedules(found)):
            return f"schedules {one!r:.200} != {other!r:.200}"
        if expected.get("routers") != found.get("routers"):  # copies are their dests'
            return f"routers {expected.get('routers')!r:.200} != {found.get('routers')!r:.200}"
    for topic_id, topic in found["topics"].items():
        if shard_of(topic_id, shards) != shard:
            continue
        want = expected["topics"].get(topic_id)
        if want is None:
            return f"topic id {topic_id} is there and should not be"
        wrong = ""
        for perhaps in (want, {**want, "jobs": leased[topic_id]} if topic_id in leased else want):
            wrong = differing_fields(perhaps, topic, besides=_PLACES if losses else frozenset())
            if (
                losses and wrong
            ):  # a recovery that was interrupted ended leases, and had no loss to tell of yet
                if "jobs" in perhaps and not _check_ended_leases(perhaps, topic):
                    wrong = differing_fields(
                        {**perhaps, "jobs": topic["jobs"]}, topic, besides=_PLACES | {"moves"}
                    )
                wrong = wrong and check_losses(perhaps, topic, machine_restarted=machine_restarted)
            if not wrong:
                break
        if wrong:
            return wrong
    return ""


def _schedules(state: Facts) -> dict[int, list[bytes]]:
    """Of each topic its schedules as they are defined: shard 0's log says so, wherever the topic's records lie."""
    return {
        topic_id: [row[0] for row in topic["schedules"]]
        for topic_id, topic in state["topics"].items()
        if topic.get("schedules")
    }


_LOGGED = (
    "id",
    "name",
    "epoch",
    "config",
    "ceiling",
)  # what the log says of an ephemeral topic; a snapshot knows more


_PLACES = frozenset(("segments", "stored_seq"))  # a start that finds another shard count takes a checkpoint


def differing_fields(want: Facts, topic: Facts, besides: frozenset[str] = frozenset()) -> str:
    """The fields in which two topics differ, in words, some fields aside; empty if none."""
    ephemeral = want["config"]["durability"] == "ephemeral"
    compared = [name for name in (_LOGGED if ephemeral else {**want, **topic}) if name not in besides]
    fields = [name for name in compared if want.get(name) != topic.get(name)]
    return "; ".join(
        f"topic {want['name']!r} {name}: {want.get(name)!r:.120} != {topic.get(name)!r:.120}"
        for name in fields
    )


_UNTIL = 4  # of a row of `jobs`
_ENDED = [b"", 0, b"", b"restart"]  # the end of a row whose lease a start has ended
_DEAD_LETTERED = 1  # of what comes before the rows
_LOSS_FIELDS = frozenset(("head_seq", "base_seq", "lost", "evict_floor", "lost_ts", "reasons", "past"))


def check_losses(before: Facts, after: Facts, *, machine_restarted: bool) -> str:
    """What a restart must have logged of a topic, and nothing else (semantics 2.6). Empty if it is so."""
    changed = {name for name in {**before, **after} if before.get(name) != after.get(name)} - _PLACES
    if "jobs" in changed:
        changed -= {"jobs", "moves"}
        if wrong := _check_ended_leases(before, after):
            return wrong
    if changed - _LOSS_FIELDS:
        return f"recovery changed {sorted(changed - _LOSS_FIELDS)}: {differing_fields(before, after)}"
    head, ceiling = before["head_seq"], before["ceiling"]
    durability = before["config"]["durability"]
    if durability == "ephemeral":
        last = max(head, ceiling)
        if before["evict_floor"] > last:
            return f"nothing to lose, yet {differing_fields(before, after)}" if changed else ""
        reasons = dict(after["reasons"])
        good = (
            after["head_seq"] == last
            and after["evict_floor"] == after["base_seq"] == last + 1
            and reasons.get("restart") == last
            and after["lost"] == []
        )
        return "" if good else f"ephemeral, yet not all is told as lost: {differing_fields(before, after)}"
    if durability == "fsync" or not machine_restarted or ceiling <= head:
        return f"nothing was lost, yet {differing_fields(before, after)}" if changed else ""
    expected = merge_lost([tuple(r[:3]) for r in before["lost"]], (head + 1, ceiling, "crash"))
    found = [tuple(r[:3]) for r in after["lost"]]
    if expected != found or after["head_seq"] != ceiling or after["evict_floor"] != before["evict_floor"]:
        return f"expected lost ranges {expected}, head {ceiling}: {differing_fields(before, after)}"
    return ""


def _check_ended_leases(before: Facts, after: Facts) -> str:
    """All leases that were live ended together, unless they are durable; jobs that had all their deliveries may have
    been given up, now that nobody has them; and nothing else of any job has changed.
    """
    config = before["config"]
    most = config["max_deliveries"] if config["dead_letter"] else 0
    (*queue, rows), (*queue_now, rows_now) = before["jobs"], after["jobs"]
    if [row[0] for row in rows] != [row[0] for row in rows_now]:
        return differing_fields(before, after)
    pairs = list(zip(rows, rows_now, strict=True))
    ended = [row for was, row in pairs if was[6:] != row[6:] == _ENDED]
    ended_ms = max((row[_UNTIL] for row in ended), default=sys.maxsize)
    given_up = []
    for was, row in pairs:
        seq, moving, leased, deliveries, until = was[:5]
        expected = was
        if leased and until >= ended_ms and not config["leases_durable"]:
            expected = [seq, moving, False, deliveries, ended_ms, 0, *_ENDED]
        if most and deliveries >= most and row != was and row[1]:
            given_up.append(seq)
            expected = [seq, True, False, *expected[3:]]
        if row != expected:
            return f"topic {before['name']!r}: leases end at {ended_ms}, and {was!r} becomes {row!r}"
    sent = [move[0] for move in after.get("moves", ()) if move not in before.get("moves", ())]
    queue[_DEAD_LETTERED] += len(given_up)
    return "" if (queue, given_up) == (queue_now, sent) else differing_fields(before, after)


def merge_lost(ranges: list[tuple[int, int, str]], new: tuple[int, int, str]) -> list[tuple[int, int, str]]:
    """Lost ranges with one more behind them; adjoining ones of one reason are one (semantics 2.6)."""
    if ranges and ranges[-1][1] + 1 == new[0] and ranges[-1][2] == new[2]:
        return [*ranges[:-1], (ranges[-1][0], new[1], new[2])]
    return [*ranges, new]
