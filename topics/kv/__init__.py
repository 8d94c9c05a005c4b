"""A replicated key-value database: Redis-like operations on values that merge without coordination (replication 3).

    entries     what is kept of the keys: a tree of entries, their join, their bytes
    operations  what a caller does with keys of each type
    future      what is stamped ahead of this node's clock, and deferred until it comes near
    garbage     what may be forgotten
    journaled   a database that outlives its process
    replica     the databases of one owner, signed in one envelope
    database    all of it: `topics.kv.Database`
    bounds      every limit

Every state is a value, every operation a join with a small one. Nothing here knows of topics, disks or sockets.
"""

from __future__ import annotations

from topics.kv.database import Database

__all__ = ["Database"]
