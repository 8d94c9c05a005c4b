"""What every driver of a store does alike: each work once, as a generator of steps that drivers carry out.

    reading         one page: plan, fetch, plan again; and the rule by which bytes that are not there are damage
    opened          how a store runs, and what it is made of; damages: what is known to be damaged in it
    viewing         a directory as it is, only to be read: nobody who writes is imported
    opening         recovery, the repair of tails, going on; directory: claimed first, then opened; restore

A driver is the threads of `embed`, the Trio tasks of `server`, or the one thread of a simulation.
"""
