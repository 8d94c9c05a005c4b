"""A store on this machine: the operating system behind the core's ports, and what a data directory is made of.

    ports           clock, entropy, disk (filetypes, parallel, spares, systemcalls), readonly: one only looked at;
                    memory: one that is none; folder;
                    refusals: what the system refused, in words
    a directory     owner, lock, boot, layout (all names), moving (between disks); readstate, loading,
                    absent: what a start finds; generations
    the log         walfile and writer: one shard's; unabsorbed; tailcache; archive; logcopies, logchain, cutting:
                    the log behind a backup
    segments        segments, blocks, seals: what a start reads of them; raising: those of format 1; appending, rewrite,
                    flags: the files; reading: the bytes of an extent
    snapshots       snapshots, checkpointer: rounds; reclaim, pins, compaction
    steps           steps: what background work asks of its driver; inline: a driver without a thread
    the cold tier   tiers: what a store of segments is; fsspec_files, fsspec_store, coldplace: which there are;
                    coldowner, coldwords, adopting: whose it is; cold, coldframes, colddisk: reading there;
                    carrying, relocation: moving segments
    backups         contents, backup, tarstream; destination, nesting: where to; unpacking, verifying
    payloads        compress

What the core decides it must not decide again: which records live, what goes where, what is a torn tail.
"""
