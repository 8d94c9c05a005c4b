"""What every driver of a store does alike: each work once, as a generator of steps that drivers carry out.

    reading         one page: plan, fetch, plan again; and the rule by which bytes that are not there are damage

A driver is the threads of `embed`, the Trio tasks of `server`, or the one thread of a simulation.
"""
