"""Every call once: its signature, the engine's command it is, its HTTP messages, and when they are repeated.

The embedded store, the clients and the command line are made from it, so names, parameters, docstrings, values and
errors are the same at all of them. Nothing here blocks, awaits, or knows a socket or a disk.

| module | what it holds |
|---|---|
| `call` | what a call is; how one, or several in turn, are carried out in a process and over HTTP |
| `records`, `topics` | the calls: on the records of a topic; on topics and on a store as a whole |
| `blocking` | `Topic`, and `TopicStore`, which `Store` and `Client` are: the calls as methods |
| `retry`, `patience` | a request repeated as often as that is safe; when, and for how long |
| `intake`, `page` | a caller's values as columns of stored bytes; what a read gives |
| `messages`, `trouble` | values as bodies of requests, answers as values; what goes wrong on the way |
"""
