"""The files of ledgerq, another queue: read in two dialects, written in one (queues 7, decision 86).

crc       the checksums of both
encode    the seed's dialect, as it is written here
entries   a segment as entries, damage left out and told
layout    the two dialects: widths, flags, priorities
position  how far the queue is written and read, as its metadata file says
"""
