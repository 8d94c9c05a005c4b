"""Every bound of the product, in one place (style 19). Sizes in bytes, times in milliseconds.

`Limits` holds those a deployment may change (`TOPICS_MAX_…`); the constants above it are fixed by a format or by a
rule of the specification.
"""

from __future__ import annotations

from typing import Final

import attrs

from topics.kernel.errors import invalid

KIB: Final = 1024
MIB: Final = 1024 * 1024

U16_MAX: Final = 2**16 - 1
U32_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1

JSON_DEPTH_MAX: Final = 200
DECOMPRESSED_MAX: Final = 100 * MIB

# Reading (semantics 4).
SCAN_SEQS_MAX: Final = 100_000
SCAN_SLICE_SEQS: Final = 8192
READ_LIMIT_DEFAULT: Final = 256
WAIT_MS_MAX: Final = 30_000  # of one read
WATCH_BATCH_BYTES: Final = 256 * KIB  # of a page, unless another size is asked for
HEARTBEAT_MS: Final = 15_000
HEARTBEAT_MS_MIN: Final = 1000
HEARTBEAT_MS_MAX: Final = 60_000
PASS_JOBS_MAX: Final = 10_000  # that one pass hands out
LEASE_MS_MIN: Final = 100
LEASE_MS_MAX: Final = 86_400_000
REASON_BYTES_MAX: Final = 1 * KIB  # of a nack
READ_NODES_MAX: Final = 64
FLOOR_STALENESS_MS: Final = 1000
REPLANS_MAX: Final = 3  # of a read whose files a checkpoint took away meanwhile
EXTENT_GAP_MAX: Final = 4 * KIB
TAIL_CACHE_BYTES: Final = 8 * MIB  # of what was written last, in all shards

# Heads that survive a crash (storage 3).
CEILING_STEP_FIRST: Final = 64
CEILING_STEP_MAX: Final = 65_536
TOPIC_IDLE_MS: Final = 1000

# The writer (storage 2 and 3).
WAL_FILE_FIRST: Final = 1 * MIB
WAL_FILE_GROWTH: Final = 4
WAL_RESERVE_STEP: Final = 4 * MIB
WAL_FILE_MAX: Final = 64 * MIB
WAL_FILE_LARGEST: Final = 1024 * MIB  # that a deployment may ask for
WAL_RESERVE: Final = 1 * MIB
WAL_SHARDS_MAX: Final = 64
GENERATION_MAX: Final = 999_999_999  # nine digits in the name of its directory
BATCH_BYTES_MAX: Final = 8 * MIB
BATCH_FRAMES_MAX: Final = 100_000
INLINE_BYTES_MAX: Final = 256 * KIB
SHARD_IDLE_MARK_MS: Final = 50
DEADLINE_LOOK_MS: Final = 60_000  # a driver sleeps no longer for a deadline, for a clock may be set forward
SYNC_INTERVAL_MS: Final = 1000  # of the classes that do not wait for one
ZERO_FILL_CHUNK: Final = 1 * MIB

# Keys of a server's clients (http-api 2).
API_KEY_CHARS_MAX: Final = 4096
API_KEYS_MAX: Final = 1000  # each of them is compared with whatever is not known yet

# Checkpoints (storage 5).
CHECKPOINT_WAL_BYTES: Final = 256 * MIB
CHECKPOINT_INTERVAL_MS: Final = 300_000
PIECE_RECORDS_MAX: Final = 10_000
SEGMENT_RECORDS_MAX: Final = 10_000_000
SEGMENT_BYTES_MAX: Final = 1024 * MIB  # offsets in it have 32 bits

# Backups.
MANIFEST_BYTES_MAX: Final = 256 * MIB

# Durable consumers (http-api 7).
CONSUMERS_PER_TOPIC_MAX: Final = 1000

# What a server looks at to say why (decision 102).
WHY_LOG_BYTES_MAX: Final = 64 * MIB  # of snapshots and log
WHY_MS_MAX: Final = 2000
WHY_WAITING_MAX: Final = 8  # one is answered at a time
WHY_PARTS_MAX: Final = 10_000  # of a reader's range: a megabyte of JSON or two

# Waiting.
PARKED_PER_TOPIC_MAX: Final = 1024
PENDING_BYTES_MAX: Final = 256 * MIB
TICK_TOPICS_MAX: Final = 256
INGEST_WAITING_MAX: Final = 1024  # commands for a shard, where pressure refuses more

# What a start reads of files that somebody may have made larger (I-18).
WAL_BYTES_MAX: Final = WAL_FILE_LARGEST + PENDING_BYTES_MAX  # a write is in one file, whatever is waiting
NOTE_BYTES_MAX: Final = 4 * KIB  # of COLD and OWNER
SNAPSHOT_BYTES_MAX: Final = U32_MAX
UNSEEN_RECORDS_MAX: Final = 1_000_000  # that a snapshot may count and no file shows

# Windows (semantics 3): a year is the longest any of them may be.
WINDOW_MS_MAX: Final = 366 * 24 * 3600 * 1000
TTL_MS_MAX: Final = 100 * WINDOW_MS_MAX
DEDUP_ENTRIES_MAX: Final = 10_000_000
RESULTS_PER_TOPIC_MAX: Final = 1_000_000

# Records on their way to another topic (queues 3).
MOVES_INTO_TOPIC_MAX: Final = 1000  # under way
MOVED_IDS_MAX: Final = 10_000  # that a topic keeps of records that came so
MOVE_BYTES_MAX: Final = 8 * MIB  # of one append, and a record more
MOVE_RETRY_MS: Final = 100  # after a refusal; twice as long after each that follows,
MOVE_RETRY_MAX_MS: Final = 30_000  # up to this

# What routers bring over (semantics 8); a refusal is followed by the rests of moves.
FORWARD_BYTES_MAX: Final = 32 * MIB  # of copies of a write, and one more; the rest is late
FORWARD_RECORDS_MAX: Final = 1000  # that an order brings over
FORWARD_SKIPPED_MAX: Final = 4096  # seqs that go nowhere, of which the log need not hear yet
FORWARD_HOPS_MAX: Final = 8  # on cycles
CATCH_UP_MAX_MS: Final = 1000  # that a read of a dest waits for copies that are on their way
TIME_AHEAD_MAX_MS: Final = 10  # of the clock, for copies that are to be later than what they are of

# Schedules (queues 4).
EVERY_MS_MIN: Final = 1000
JITTER_MS_MAX: Final = 86_400_000
CRON_CHARS_MAX: Final = 256
TIMEZONE_CHARS_MAX: Final = 64
TIMEZONES_CACHED_MAX: Final = 256
CATCH_UP_MAX: Final = 1000  # missed instants that `catch_up: "all"` fires
COMING_MAX: Final = 100  # instants that a schedule is asked for
FIRING_LATE_MS: Final = 60_000  # an instant that is looked at no later is on time: as `DEADLINE_LOOK_MS`
FIRING_RETRY_MS: Final = 100  # after a refusal; twice as long after each that follows,
FIRING_RETRY_MAX_MS: Final = 30_000  # up to this

# Routers (semantics 8).
FILTERS_CACHED_MAX: Final = 1024  # parsed
ROUTERS_REMOVED_MAX: Final = 1000  # that the answer of a topic's deletion names


@attrs.frozen(kw_only=True)
class Limits:
    """Bounds a deployment may change, with their defaults (http-api 1)."""

    records_per_write: int = 10_000
    record_bytes: int = 1 * MIB
    body_bytes: int = 64 * MIB
    meta_bytes: int = 16 * KIB
    meta_keys: int = 64
    tag_bytes: int = 256
    node_bytes: int = 128
    key_bytes: int = 256
    dedup_id_bytes: int = 256
    content_type_bytes: int = 255
    idempotency_key_chars: int = 256
    read_limit: int = 1000
    claim_limit: int = 1000
    page_bytes_default: int = 1 * MIB
    page_bytes: int = 8 * MIB
    watch_topics: int = 256
    topics: int = 100_000
    schedules: int = 10_000
    routers: int = 10_000
    tags_per_topic: int = 1_000_000
    total_bytes: int = 0
    wal_file_first: int = WAL_FILE_FIRST
    wal_file_max: int = WAL_FILE_MAX
    wal_reserve: int = WAL_RESERVE

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(Limits):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise invalid(f"limits.{field.name}", f"must be a whole number, not {value!r:.40}")
        for name in ("wal_file_first", "wal_file_max", "wal_reserve"):
            if getattr(self, name) > WAL_FILE_LARGEST:
                raise invalid(f"limits.{name}", f"at most {WAL_FILE_LARGEST}")
        for name in ("tag_bytes", "node_bytes", "key_bytes", "dedup_id_bytes", "content_type_bytes"):
            if getattr(self, name) > U16_MAX:
                raise invalid(
                    f"limits.{name}", f"at most {U16_MAX}: the format keeps its length in two bytes"
                )
        if self.idempotency_key_chars > U16_MAX // 4:
            raise invalid("limits.idempotency_key_chars", f"at most {U16_MAX // 4}")
