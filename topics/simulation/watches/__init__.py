"""The watchers of a simulation: how they watch through all lives of a server, and whether what they were told adds up.

event_speaker      a stream of server-sent events over memory, from the client's side
simulated_watcher  one who watches topics through all lives of a server: slow now and then, cut off, going back
watch_history      what one watcher was told of its topics, event by event: all of it together must add up
wire_watches       what watchers were told over the wire, held against the pages that the engine had decided
"""
