"""How two nodes find out what each lacks, and exchange it (replication 5.8 to 5.10).

messages   what nodes say to each other, as values
wire       their bytes
ranges     hashes in order, and what any range of them adds up to
reconcile  comparing folds of ever smaller ranges
inventory  what a node has to offer: a store as the exchange sees it
session    a whole sync over a stream
fetch      a stretch of one author's chain, behind a gap
bootstrap  cloning a store from a peer by its witness log
catchup    snapshots, for a node whose peers have pruned what it lacks
counts     what sessions and nodes moved
limits     bounds of all this
"""
