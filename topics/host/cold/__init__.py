"""The cold tier: what holds segments there, whose it is, moving and reading them.

adopting        adopting a cold tier: the operator says that this copy of a data directory goes on with it
carrying        one segment between the tiers: its copies, compared before either goes, and its `.del` there
cold_disk       a data directory whose cold segments can be read, for a start that has to make an idx or columns
                anew
cold_messages   what an operator is told whose cold tier is in doubt: what is the matter, what goes on, and what
                to do (decision 26)
cold_tier       the cold tier as the rest of a store sees it: which segments are there, and reading them
frames          frames read from the cold tier, held against the index, which is in the data directory
fsspec_files    files below a URL, in whatever fsspec reaches: `s3://`, `gs://`, `memory://` …
fsspec_store    cold segments below a URL, in whatever fsspec reaches
ownership       who may change a cold directory: one store, by a note that lies in it and in the data directory
place           from the name of a cold directory to its store: a folder, or an object store that fsspec reaches
relocation      moving sealed segments between the tiers, as steps that a driver carries out
segment_stores  where a sealed segment may lie besides the data directory: the cold tier
"""
