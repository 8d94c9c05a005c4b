"""One node among its peers (replication 5.9, 5.10).

exchange       who is connected, what is being exchanged with whom, what is due
conversations  what is under way with whom, by stream and by peer
partners       with whom to sync, and when
outbox         what waits to be carried to peers
acks           a node says in the graph what it has seen
roster         which nodes are peers, and which invites are open
invite         how a node that nobody knows becomes a peer
genesis        the first intention of a store says what it is
"""
