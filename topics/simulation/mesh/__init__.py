"""Many Weaver nodes on one thread, all from one seed.

faults   what may go wrong in a mesh, and how often
network  twenty nodes: partitions, skewed clocks, restarts, liars and a bad network
node     a Weaver node as a simulation runs it: real parts over journals in memory, and a clock that is off
"""
