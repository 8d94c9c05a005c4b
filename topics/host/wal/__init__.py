"""The files of the log: written, cached, archived, and put in a chain for a restore.

archive         the archive of the log: WAL files that a checkpoint has absorbed, kept for restores to a moment
cutting         where the log is cut for a restore to a moment or a seq
logchain        the log behind a backup: WAL files that were archived, or are in use still, each going on where
                the one before ended
logcopies       which files of a log some directories have
tailcache       the newest bytes of one shard's log, as its writer handed them to the system: what live readers
                read
uncheckpointed  what only the log has, in front of the place where a snapshot has it
walfile         the writer of one shard: files, offsets, frame numbers, rotation and CommitMarks
"""
