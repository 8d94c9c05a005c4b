"""The engine driven by Trio: in a program of one's own by `open_trio`, and in the server (architecture 3 and 4).

store      `open_trio` and `AsyncStore`: a data directory in a program on Trio
async_rounds_feed  what a watch is told by a store in this process, to a task
runtime    the engine driven by Trio: the one place that touches it
alarms     what time alone brings, when it does
shard      one shard on Trio: a task says which batch comes next, a thread does the system calls
thread     a thread for system calls, one a shard (performance 4): never a pool's, never Python's work
compactor  checkpoints and other background work: a task carries out the steps, the blocking ones in a thread
pages      pages of topics: read for one, or once for all who wait for the same
fetch      fetching what a plan asks for: from the page cache on the loop, from the disk in a thread
jobs       jobs handed out: leased, fetched, and given back where nobody takes them
claims     claims on their way to the engine: those that come before the next batch are served together
hands      jobs pushed to whoever works on a queue: as many as he takes at a time
hub        readers who wait for news of a topic: woken together, told in turn when there is much, read for once
gauge      how busy the loop is, looked at while topics wait for their turn
watcher    what a stream watches: topics, whose turn it is, what comes next of it
wheel      times at which something is looked at, for any number of them: one task, one timer
deliveries  how long what is waited for takes from its write until what is sent of it is made
mover      orders of the engine carried out: records are read, in a thread, and appended to where they go
events     what a runtime has to say of itself, to a log if there is one
"""
