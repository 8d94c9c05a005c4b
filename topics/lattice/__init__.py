"""Values that merge: any two replicas of one have a least state above both, whatever came in which order.

A lattice says how values of a kind are joined; values are immutable and know nothing of clocks, topics or peers.
"""
