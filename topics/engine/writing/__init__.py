"""A write of records, a topic that comes, changes and goes: whether it may be, and what it becomes.

admit     admitting a write: what is refused before a seq is assigned, and why
append    proposing a write: every check before a seq is assigned, then seqs, reservations and frames in one step
ceilings  raising the ceiling of a topic, above which nothing is published that a power cut would take back
change    proposing everything but a write: change and delete a topic, delete records, let time pass, sync
creating  creating topics: each a synced frame on shard 0 before anything else of it
"""
