"""The durable consumers of a simulation: what is asked of them over HTTP, and whether what was told of them holds.

consumed_world     world through the front door, with clients that read by durable consumers
consumer_wishes    what readers that keep their place ask for over HTTP
wire_consumers     where consumers stand, as clients were told, held against what any client is told later
"""
