"""Routers: what comes into one topic is copied into another (semantics 8).

definitions  putting a router and deleting it: frames on shard 0, synced, one change at a time
looking      what there is to be told of routers
"""
