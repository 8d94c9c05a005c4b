"""Who may ask what (http-api 2): keys as they are written, as they are known while a server runs, and in their file.

What a request or a message needs stands in its row (`topics.server.api.routes`, `topics.server.api.ops`), in the words
of `scopes`; `topics.server.api.authorise` compares the two.

keyfile  the file of keys: read whole, and written anew
keys     the keys of a server as they are now: who is asking, what he has under way, and that he was revoked
lines    a key as it is written: its forms, and what is wrong with one
scopes   what a row of the tables says that it needs, and which names it speaks of
"""
