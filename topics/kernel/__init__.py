"""Words everyone shares. Knows no bytes, no policy and no operating system.

checks         checks of values that come from outside
clock          the engine's time: `max(clock, highest time used, last frame's ts)`
columns        what a write carries, as columns: one list a field, no object a record (performance 4)
config         a topic's configuration: a class of fields, from which defaults and the echo follow, and a parser
               each
deadlines      which seqs are due by when, without an object a seq
errors         what can go wrong, and whose it is
extras         what an extra of the distribution brings, and who lacks it is told which
grouped        places of columns that are read and written together, in one piece where they lie side by side
ids            identities: topic names, numeric topic ids, and the shard a topic lives on
limits         every bound of the product, in one place
ports          what the core and its drivers ask of the world
version        the version of this package
whole_numbers  the numbers that files and backups hold, as their decoders bound them (I-18)
"""
