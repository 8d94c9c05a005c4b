"""A write of records: whether it may be, and what it becomes.

admit   admitting a write: what is refused before a seq is assigned, and why
append  proposing a write: every check before a seq is assigned, then seqs, reservations and frames in one step
"""
