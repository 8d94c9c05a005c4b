"""What a page of an `OracleTopic` says (semantics 4): seq by seq, in the order the page names."""

from models.oracle_topic import LOST

CLASSES = ("delivered", LOST, "deleted", "expired", "own_node", "filtered")


def start_of(topic, from_ts: int) -> int:
    """The bound before everything at or after `from_ts`, losses included."""
    if any(e.ts >= from_ts and e.end == LOST for s, e in topic.log.items() if s < topic.evict_floor):
        return 0
    above = [s for s, e in topic.log.items() if e.ts >= from_ts and (e.end is None or e.in_range)]
    return min((s for s in above if s >= topic.evict_floor), default=topic.head + 1) - 1


def read(topic, *, now: int, from_seq=0, from_ts=None, epoch=None, limit, nodes=frozenset(), accepts=None):
    """(from_seq, delivered seqs, next_from_seq, gap as (from, to, reason) or None, account)."""
    from_seq = from_seq if from_ts is None else start_of(topic, from_ts)
    anew = epoch not in (None, topic.epoch) or from_seq > topic.head
    from_seq = 0 if anew else from_seq
    account = dict.fromkeys(CLASSES, 0)
    delivered: list[int] = []
    cursor, gap = from_seq, None
    first = topic.log.get(from_seq + 1)
    if from_seq + 1 < topic.evict_floor or (first and first.in_range):
        cursor = topic.earliest - 1 if from_seq + 1 < topic.evict_floor else first.in_range
        reasons = set().union(*(topic.log[s].reasons for s in range(from_seq + 1, cursor + 1)))
        gap = (from_seq + 1, cursor, reasons.pop() if len(reasons) == 1 else "mixed")
        account[LOST] = cursor - from_seq
    while cursor < topic.head and len(delivered) < limit and not topic.log[cursor + 1].in_range:
        cursor += 1
        what = classify(topic, topic.log[cursor], now, nodes, accepts)
        account[what] += 1
        if what == "delivered":
            delivered.append(cursor)
    return from_seq, delivered, cursor, (1, topic.head, "recreated") if anew else gap, account


def classify(topic, entry, now: int, nodes, accepts) -> str:
    if entry.end is not None:
        return entry.end
    if entry.expires_at is not None and entry.expires_at < now:
        return "expired"
    if entry.node in nodes and topic.config.dedupe_node:
        return "own_node"
    return "filtered" if accepts is not None and not accepts(entry.tag) else "delivered"
