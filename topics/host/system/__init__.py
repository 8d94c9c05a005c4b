"""The operating system: clock, entropy, disk, and what it refuses.

boot         what may have taken bytes that were written and not synced: another boot of the machine, another
             mount of the log
calendar     times of day as people mean them: cron expressions in time zones (`kernel.ports.Calendar`)
clock        wall time of this machine, and how a time is written for people
compress     compression of stored payloads: only the data bytes, told apart by their first bytes
disk         one data directory on a real file system (`kernel.ports.Disk`)
entropy      randomness of this machine, fit for secrets
filetypes    the type of what lies under a name that should be a file: a pipe, a directory, a socket, a device
             or a link
folder       a folder on this machine that outlives a power cut: its name, and that of every folder made on the
             way to it
medium       what a storage medium says when it cannot give bytes back
memory       a data directory that is in memory and nowhere else (`kernel.ports.Disk`): `topics serve --memory`
moving       moving a file to another folder of a data directory, which may lie on a file system of its own
parallel     blocking calls at once, when none depends on another: a file system syncs many files for little
             more than one
readonly     disks that are looked at and never changed: the Disk port without its changing half
refusals     what the operating system refused, as people are told it: which path, why, and what to do
spares       descriptors that a disk keeps for its writes and syncs
systemcalls  the system calls of a disk whose errors matter most, each by descriptor
temporary    a file that is written beside its place until it is whole and synced, for a rename to put it there
"""
