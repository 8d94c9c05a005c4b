"""The view: what replaying the store through a machine gives, and nothing else (replication 5.5, 5.6).

projection  `StateBackend`
ops         what the ops of an intention mean to a store of a type
snapshot    the state as bytes, the same for the same state
watch       who wants to hear of keys
prune       history that every active peer has seen is dropped, but for what reads still need
"""
