"""A world that can be stopped, broken and repeated: simulated clock, randomness and disk. Imports kernel only.

below     a folder of a disk as a disk: one simulated machine has both tiers, counts the calls of both, loses
          both at once
calendar  a calendar whose instants anybody can say
clock     a clock that moves only when it is told to
entropy   randomness that repeats: the same seed gives the same tokens in the same order
faults    what can be made to go wrong on a simulated disk, and when
journal   a journal in memory: what a restart of the process would find is `items`, and it can be told to fail
simdisk   a disk in memory that knows what was synced, and can fail and crash on demand (`kernel.ports.Disk`)
simfile   one simulated file: what a process reads, what the platter holds, and the changes between
simstore  what a simulated disk holds, and what each call does to it when nothing goes wrong
simtree   names of the simulated disk: directories as they read now, as the platter has them, and the changes
          between
streams   a connection in memory: two ends, each the server's port Edge, that keep the pieces they were sent in
survival  what a power loss leaves behind: the choices, apart from the bytes they are made about
"""
