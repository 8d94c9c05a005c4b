"""From the bytes of a body to values, each limit checked before anything is built of what will be refused (http-api 1).

encoding   gzip, both ways
fields     an object as a typed form; the names that nobody knows
pieces     a large body, walked in pieces
forms      what a write may look like
metas      the metas of a write as they are stored
known      labels that were checked not long ago
writes     the body of a write as the engine's command
"""
