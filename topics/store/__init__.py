"""One way to drive the engine: generators of steps, and what carries the steps out (architecture 3).

A generator looks at the engine and yields what has to be done next (`host.steps`): a call that blocks, a command, a
wait. Threads (`embed`), Trio tasks (`server`), a simulation and a start drive the same generators.

    steps       carrying steps out, in threads and in Trio tasks
    background  checkpoints and the work between them: one at a time, failures counted, tried again
    reading     one page: plan, fetch, plan again; and the rule by which bytes that are not there are damage
    inline      all of a work at once, by whoever is alone with a store
    opened      how a store runs, and what it is made of
    damages     what is known to be damaged in an open store
    viewing     a directory as it is, only to be read: nobody who writes is imported
    directory   a directory, claimed first and then opened; or one in memory
    opening     recovery, the repair of tails, going on
    restore     a backup, and the log behind it, made a store again
"""
