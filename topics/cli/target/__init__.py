"""The place a command works on: a directory or a server, opened.

consumed   what a command has printed, for durable consumers: they have read it
following  following topics: one thread each waits for more, at a server or in this process, and tells what
           comes here
known      what a store knows to be damaged: what its start or its background work has found in segments, and is
           still there
place      where the topics are: a directory, or a server at a URL; and what is said when that cannot be used
"""
