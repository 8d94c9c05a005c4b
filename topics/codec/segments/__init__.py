"""The files of segments.

segcolumns  what the index of a segment needs beside its `.idx`: sizes, tags, nodes and expiries, its `.col`
            file
segdel      which records of a cold segment have ended since it went there: its `.del` file
segidx      where the records of a segment lie: its `.idx` file
segment     the records of a segment: its `.data` file
"""
