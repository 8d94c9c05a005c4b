"""One way to drive the engine: generators of steps, and what carries the steps out (architecture 3).

A generator looks at the engine and yields what has to be done next (`host.checkpoint.steps`): a call that blocks, a
command, a wait. Threads (`embed`), Trio tasks (`server`), a simulation and a start drive the same generators.

    writer      one shard's log: batches, marks, the next file's reserve, room, the end
    steps       carrying steps out, in threads and in Trio tasks
    background  checkpoints and the work between them: one at a time, failures counted, tried again
    moving      an order: records of one topic are read and appended to another
    forwarding  an order of a router: records of its source are read, and brought over to its dest
    orders      orders of the engine, as the steps by which a driver carries one out
    reading     one page: plan, fetch, plan again; and the rule by which bytes that are not there are damage
    records     pages of records in an order of their own, as many of the first as fit
    opened      how a store runs, and what it is made of
    damages     what is known to be damaged in it
    stats       what a store holds, in numbers
    viewing     a directory as it is, only to be read: nobody who writes is imported
    opening     recovery, the repair of tails, going on
    directory   a directory is claimed first, then opened
    restore     a store out of a backup, and of the log behind it
    inline      all of a work at once, by whoever is alone with a store
"""
