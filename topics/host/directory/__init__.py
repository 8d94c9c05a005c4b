"""A data directory: its names, who owns it, and what a start takes from it.

generations   which generation of the log is written on, and in which file of each shard
layout        the names of a data directory, and its two smallest files: FORMAT and CURRENT
loading       what a start takes from snapshots and segments before it replays the log, and what of them it
              mends
lock          one owner per data directory
missing_logs  what of a log is not there at all, so that no frame of it can tell
nesting       which folders are directories of topics, so that none is put into another
owner         whose a data directory is: the line in LOCK, read without taking it
raising       a store of format 1 becomes one of this version's (decisions 45 and 46)
readstate     what a directory holds, read and judged without a change to it: what a start goes on from, and
              what fsck and a read-only view ask
restored      how far each topic went when the directory was made of a backup
size_limits   how large a file of each kind can be, so that whoever reads one whole reads no more (I-18)
"""
