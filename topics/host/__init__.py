"""A store on this machine: the operating system behind the core's ports, and what a data directory is made of.

What the core decides it must not decide again: which records live, what goes where, what is a torn tail.

    backup      backups: what is in one, taking, sending, checking and restoring it
    checkpoint  rounds that copy the log into segments, keep a snapshot, and remove what is needed no more
    cold        the cold tier: what holds segments there, whose it is, moving and reading them
    directory   a data directory: its names, who owns it, and what a start takes from it
    segments    the files of segments: written, held against each other, read
    system      the operating system: clock, entropy, disk, and what it refuses
    wal         the files of the log: written, cached, archived, and put in a chain for a restore
"""
