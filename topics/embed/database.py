"""Databases in an embedded store: each keeps its journal in an internal topic of its own (architecture 7).

    with topics.open("./data") as store:
        databases = Databases(store, keys)
        db = databases.open("settings")
        db.set("colour", "red")

Opening replays the journal. The id under which the replica counts is in it, so a reopened database goes on with its
columns; a directory that was copied or restored has a twin with the same id, and is opened with `new_life=True`.

A database is for one thread at a time, as in the core; the store below may serve many. It is open
once at a time: of two `Databases` that open one name, the first to write goes on and the other's writes are refused.
"""

from __future__ import annotations

from typing import Final

from topics.crypto.hashing import blake3
from topics.crypto.keys import KeyPair
from topics.embed.journal import TopicJournal
from topics.embed.store import Store
from topics.host.system.clock import SystemClock
from topics.host.system.entropy import SystemEntropy
from topics.kernel.errors import Corrupt, Rejected
from topics.kernel.ids import check_topic_name
from topics.kernel.ports import Clock, Entropy
from topics.kv.bounds import KvLimits
from topics.kv.database import Database
from topics.kv.journaled import DatabaseHeader, Journaled, replay
from topics.kv.replica import Replica, check_database_name
from topics.lattice.owners.authority import Authority, Owner

PREFIX: Final = "kv."


class Databases:
    """The databases of one owner that are kept in a store. `home` exports and absorbs for all of them."""

    def __init__(
        self,
        store: Store,
        keys: KeyPair,
        *,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        owner: Owner | None = None,
        authority: Authority | None = None,
        limits: KvLimits | None = None,
    ) -> None:
        """See `kv.Replica` for the arguments; clock and entropy are the system's if they are not given."""
        self._store: Final = store
        self._keys: Final = keys
        self._opened: dict[str, Database] = {}
        self.home: Final = Replica(
            keys,
            clock=clock or SystemClock(),
            entropy=entropy or SystemEntropy(),
            owner=owner,
            authority=authority,
            limits=limits,
        )

    def open(self, name: str, *, new_life: bool = False) -> Database:
        """The database of that name, made if there is none. Opened twice it is the same object.

        `new_life`: count under a new id from here on, because this directory is a copy of another one.

        Raises:
            Corrupt: its journal has a hole, or was not written by a database.
            Rejected, Fatal: of the store.
        """
        check_database_name(name)
        if name in self._opened:
            return self._opened[name]
        journal = TopicJournal(self._store, topic_of(name))
        store, header, size, deferred = replay(journal)
        if header is not None and header.name != name:
            raise Corrupt(
                f"topic {journal.topic!r} holds database {header.name!r}, not {name!r}", topic=journal.topic
            )
        fresh = header is None or new_life or header.signer != self._keys.public
        if header is None or fresh:
            header = DatabaseHeader(name, self._keys.public, self.home.new_replica_id())
        cursor = Journaled(journal, self.home.limits, store, header, journal_bytes=size, deferred=deferred)
        if fresh:
            cursor.begin(header)
        self.home.adopt(name, cursor)
        database = self._opened[name] = Database.of(self.home, name, replica=header.replica)
        return database

    def compact(self, name: str) -> None:
        """Write the database's state once more and forget what came before it. It happens by itself when it pays."""
        cursor = self.home.cursor(self.open(name).name)
        assert isinstance(cursor, Journaled)
        cursor.compact()


def topic_of(name: str) -> str:
    """The topic of a database, without its `$`: by name if topics can be called that, else by the name's hash."""
    try:
        return check_topic_name(f"{PREFIX}name.{name}")
    except Rejected:
        return f"{PREFIX}hash.{blake3(name.encode()).hex()}"
