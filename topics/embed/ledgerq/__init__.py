"""Directories of ledgerq, another queue: into topics, and out of them (queues 7, decisions 86 and 87).

directory  a directory of ledgerq as entries and faults, read only
exporting  a topic as a directory in the seed's dialect
importing  a directory into a new topic, with its ids and times
mapping    an entry as a record, and back: headers, priorities, expiry, provenance of dead letters
"""
