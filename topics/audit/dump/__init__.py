"""What is in one file, item by item: what `topics inspect` shows.

dumping        what is in one file of a data directory, item by item, damaged places too: what `topics inspect`
               shows
segment_items  the files of a segment as items: records with their delete bytes, entries, blocks, ends; and what
               is damaged
wal_items      a file of the log as items: its header, every frame, and what is damaged between them
"""
