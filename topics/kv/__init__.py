"""A replicated key-value database: Redis-like operations on values that merge without coordination (replication 3).

    tree        an immutable map by digest, in which versions share what they have in common
    entry       what is kept of a key: lanes, and which of them is visible
    merge       the literal pairwise rule, and the join that converges
    wire        entries as cells
    edit        a local operation as the smallest entry that says it
    store       all keys of one database
    keyspace    the state, its clock, its journal; the modules of each kind add their operations
    gc          what may be forgotten
    future      what of an entry lies in the future; `room`: where that waits; `report`: how it is told
    replica     the databases of one owner, signed in one envelope
    database    all of it: `topics.kv.Database`

Every state is a value, every operation a join with a small one. Nothing here knows of topics, disks or sockets.
"""

from __future__ import annotations

from topics.kv.database import Database

__all__ = ["Database"]
