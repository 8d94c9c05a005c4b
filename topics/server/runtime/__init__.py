"""The engine driven by Trio: writer threads, submit, reads, waiting readers, alarms, metrics (architecture 3 and 4).

backup     a backup on its way to a client: read in a thread, a piece when the last one has been taken
compactor  checkpoints and other background work of a server: a task carries out the steps, the blocking ones in
           a thread
fetch      fetching what a plan asks for: from the page cache on the loop, from the disk in a thread
figures    what a server has counted, copied on the loop, where alone it holds still
hub        readers who wait for news of a topic: woken together, and what several of them ask for is read once
log        the server's log: events with fields, one a line on stderr
metrics    metrics: what the server counts, as Prometheus text or as JSON
mover      orders of a server carried out: records are read, in a thread, and appended to where they go
runtime    the engine driven by Trio: the one place of the server that touches it
shard      one shard on Trio: a task says which batch comes next, a thread does the system calls
thread     a thread for system calls, one a shard (performance 4): never a pool's, never Python's work
"""
