"""The Weaver: signed changes that form a graph, replicated without a leader (seed weaver, replication 5).

An *intention* is a change its author signed; it names the author's previous one (`store_prev`) and the writes it has
seen (`condition`). The `IntentionStore` keeps the graph and is the truth; a `StateBackend` is the view that replaying
it gives, and can be deleted. Nothing here reads a clock, a file or a socket by itself.
"""
