"""Replicated queues and topics (replication 2).

lattice_queue   a queue as its users see it
lattice_topic   queues side by side, and the key that says into which a record goes
lattice_topics  the map of topics: what one owner publishes under `queue`
handle          what these three have in common: a value behind a cursor that forks, syncs and merges
consumer        reading a queue in order, with an offset of one's own
queue_state     the state of one queue, and how two states join
entries         its records by absolute offset, immutable and shared between copies
record          a record: key, value, producer's timestamp, headers
metadata        what a queue or topic says of itself
topic_map       topics and the map of them, as lattices
routing         which partition a key belongs to
fence           who may append: leases of a partition, counted by epochs
divergence      two records at one offset: the sign that a queue had two writers
editor          whoever edits: a clock, the leases it holds, and what merges told it
"""
