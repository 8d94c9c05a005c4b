"""Is a data directory whole? Checks that read files and change nothing, what they report, and the repair.

`scan` turns one file into one row, in any process; `checks` compares rows across files; `recovery` asks the code that a
start runs, so that nobody decides twice what is a torn tail and what is damage; `fsck` puts them together. Nothing
here needs the server, the embedded store or a lock, but `repair`, which owns the directory while it works.
"""
