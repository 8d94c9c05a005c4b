"""The Weaver: signed changes that form a graph, replicated without a leader (seed weaver, replication 5).

    model   what an intention is: its fields, its signature, its time
    graph   the graph of witnessed intentions, and what can be asked of it
    store   the truth: what a node accepted, and the order in which it witnessed it
    state   the view that replaying the store gives
    sync    how two nodes find out what each lacks, and exchange it
    node    one node among its peers
    weaver  `Weaver`: store and state together, as a program uses them

An *intention* is a change its author signed; it names the author's previous one (`store_prev`) and the writes it has
seen (`condition`). The `IntentionStore` keeps the graph and is the truth; a `StateBackend` is the view that replaying
it gives, and can be deleted. Nothing here reads a clock, a file or a socket by itself.
"""
