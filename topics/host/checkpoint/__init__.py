"""Rounds that copy the log into segments, keep a snapshot, and remove what is needed no more.

blocked_topics  what holds up the absorbing of single topics: records in the log that are not whole, or cannot
                be read
checkpointer    one round of a checkpoint, as steps that a driver carries out
compaction      compaction that somebody asks for: what dead records hold is given back now, not a slice a
                second
pins            what backups that are being read need of the data directory
reclaim         reclaiming the space of dead records in segments: what is flagged, what is rewritten, and when
removal         removing what neither of the two kept snapshots needs: logs, segments, and what a crash has left
snapshots       snapshots on the disk: meta/snapshot.NNNN.bin, each the state at a cut
steps           the steps of work on a store: what its generator asks of a driver between looks at the engine
"""
