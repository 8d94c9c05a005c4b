"""The files of segments: written, held against each other, read.

appending      appending the pieces of a checkpoint to segments
blocks         the columns of a segment, from its `.col` file: taken if they are whole and its own, else made
               anew from its data
flags          the ends of records in the files of segments: how a reader without the state knows what is dead
reading        where the bytes of an extent come from
rewrite        one sealed segment written anew without what is dead in it, and put in the place of the old one
segment_files  what a start and a rewrite read of a segment's files: idx and columns, held against the data
segment_seals  whose an `.idx`, `.col` or `.del` is: its checksums begin with store, topic and segment
"""
