"""What a reader gets: the plan of a page, filters, tombstones, and when a read goes on waiting.

consumers  where the durable consumers of a topic stand: the cursors that the store keeps for readers
diff       a read by seq: which records it delivers, and what became of every other seq it passes
frames     the frames of a plan: where they lie, and the records cut out of what was fetched, each of them verified
masks      masks: a byte a slot, 1 or 0, as one big number, so that thousands of slots are decided in a few calls
match      the match language of deletes and read filters: `["tag","Eq","x"]`, `["tag","Glob","x*"]`, `"x"`
records    a read by seqs: those that are there, in ascending order, whatever lies between them
tombstone  where a read starts, and whether it must be told of a loss first
waiting    waiting for news of a topic: what there is, when a read goes on waiting, how its pages become one
watching   a topic that is watched: how far what was made for its watcher reaches, and what he is told of it
"""
