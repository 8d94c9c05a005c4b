"""Values that merge: any two replicas of one have a least state above both, whatever came in which order.

    values  what a lattice is, where a value of one lives, and its times
    owners  whose state it is: signed slots, and who may sign them
    queues  replicated queues and topics

A lattice says how values of a kind are joined; values are immutable and know nothing of clocks, topics or peers.
"""
