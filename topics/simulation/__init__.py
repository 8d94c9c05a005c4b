"""The product run on one thread against a simulated disk, clock and chance, and checkers that know none of its code.

background         background work in a simulation, which goes on a step now and a step then, and what it leaves
                   behind
claims             what clients were told and saw, and whether it still holds
clients            simulated clients of the server: what they speak, and what they were told
consumers          the durable consumers of a simulation: what is asked of them over HTTP, and whether what was told of
                   them holds
drawn_options      how the store of one run is set up: drawn at its start, small, so that files and segments end
                   often
ledger             everything the checkers of one World know: what went to each shard's log, what a sync has
                   covered, what clients hold
machine            opening a store on a simulated disk as a driver would, and reading what is on a disk without
                   changing it
memory_port        a port in memory: connections are served as those of sockets are, and told of what comes
mesh               many Weaver nodes on one thread, all from one seed
oracle             which states a crash may leave: for each shard any prefix of its writes that is not shorter
                   than the synced one
queues             the queues of a simulation: what workers ask of them, what they were told, and whether it holds
routers            the routers of a simulation: what clients ask of them, and what their dests hold when all is over
scheduling         one seed, one order of tasks: Trio run with a seeded scheduler on a clock that jumps to
                   whatever is due next
served             world through the front door: the real runtime and data plane over the simulated disk, and
                   clients that speak HTTP
shard_stepper      one shard's batch on its way: the stages a driver goes through, one call at a time
simulated_threads  what the server stands on in a simulated run: threads that are none, an engine and writers
                   under watch, a site whose answers are the same whenever they are made
synced_bytes       what a sync has covered, from the disk's calls alone (I-17)
watches            the watchers of a simulation: how they watch through all lives of a server, and whether what they
                   were told adds up
workload           what the simulated clients ask for: drawn from one seeded generator, small values that
                   collide often
world              one seed, one run: engine, shard writers, clients, disk, clock and chance on one thread
"""
