"""One topic as the log makes it: pure state, which folding frames changes and nothing else does.

dedupe          what a topic remembers of writes, so that a retry appends nothing
facts           what a topic knows, told once: its image, the digest and the topic made of an image again walk
                these tables
floors          the floor of involuntary loss, and the memory of what was lost below it
fold            folding one frame into one topic: the half of `apply` that knows a topic
image           a topic as a value that can be kept: what a snapshot holds of it, and the topic made of that
                again
index           the columnar index of one topic: a slot a record, an array a field, no object a record
                (performance 4)
jobs            the jobs of a queue: what its leases log says of them
kinds           the types of topics: what each does beyond keeping records
lost            lost ranges: seqs known lost between live records
past            what became of seqs that have no slot, as runs, so that every account adds up
placing         slots of an index as what they stand for moves, or ends
reads           what a reader gets: the plan of a page, filters, tombstones, and when a read goes on waiting
regions         where the bytes of a topic's records lie: runs of seqs, each in one source
retention       eviction and expiry as functions of the log: "now" is always the ts of the frame being applied
routers         routers as the log leaves them: which there are, and how far each has come
schedules       the schedules of a topic: what they are, and what they have fired
segments        which segments hold a topic's records: what folding its CheckpointMarks gives
slots           slots of an index as a value: consecutive records as columns, to be kept and to be put into an
                index again
tags            tags and nodes: names interned to small numbers, and for tags the live seqs of each
topic           one topic's state: what folding its frames gives
"""
