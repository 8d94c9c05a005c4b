"""The embedded store: the engine in the caller's process, on the caller's threads.

`store.open` gives a `Store`; `Store.topic` a `Topic`. The names are those of the HTTP client, so that code moves
between the two by changing one line (operations 5). Nothing is imported here: a client uses pages without a store.
"""
