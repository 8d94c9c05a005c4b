"""The graph of witnessed intentions, and what can be asked of it (replication 5.4, 5.5).

intention_graph  who is above whom; tips and forks by author
queries          ancestors, common ancestors, paths, branches
heads            the writes of a key that no other is known to follow, and which of them reads show
effective        the stamp that decides, when a signed one is too far ahead
"""
