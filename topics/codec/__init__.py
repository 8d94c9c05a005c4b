"""Bytes to values and back. No policy, no state, no I/O: what a value means is decided above.

cell        cells: the values replication speaks of, and the one way to write each
digest      the digest of a write's body, which tells a retry from another write under the same idempotency key
json_text   JSON at the edge: what is accepted as JSON, and answers spliced from stored bytes
ledgerq     the files of another queue, read and written
log         the frames of the log, and its files
manifest    BACKUP.json: what a backup is made of, written last
primitives  the bricks of every format: little-endian integers, XXH3-64, per-length layouts
segments    the files of segments
snapshot    the container of a metadata snapshot: which one it is, and that it is whole
why         what became of a record or a job, as it is told in JSON
"""
