"""What the files of a directory say, and what a restart took (storage 4).

contradictions  what no image of a topic can say, whatever was written, deleted and lost (I-18)
judge           torn tail or corruption? The decision of storage 4, pure, for one shard of one generation
recover         recovery: what the files of a directory say, folded by the same `apply` as live writes
restart         what a restart took of topics: a frame says so before one goes on, if anything may be written
"""
