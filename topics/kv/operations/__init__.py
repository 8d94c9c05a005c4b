"""What a caller does with keys of each type (replication 3.3).

keyspace     the state, its clock, its journal; the others add their operations to it
keys         whole keys: get, set, delete, exists, keys, type, expire, ttl, and reading with all conflicts
counters     numbers that are added to and taken from
hashes       fields by name
lists        one value each
sets         members
sorted_sets  members with a score
"""
