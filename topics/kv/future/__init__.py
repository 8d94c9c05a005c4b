"""Entries that are stamped ahead of this node's clock: they are deferred until it comes near (replication 1.3).

deferred  the entries that are, by key, and how an entry is split at an instant
gate      what defers them and merges them when they are due, at one database's cursor
report    how they are told of
"""
