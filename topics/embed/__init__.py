"""The embedded store: the engine in the caller's process, on the caller's threads.

`store.open` gives a `Store`; `Store.topic` a `Topic`. The names are those of the HTTP client, so that code moves
between the two by changing one line (operations 5). Nothing is imported here: a client uses pages without a store.

    aio           the engine driven by Trio: for tasks, and for the server
    backup        a backup of a store in this process, taken by a thread, while others read and write
    catching_up   threads that read a dest wait for what routers are bringing it
    claims        threads that claim jobs, and wait for them
    compaction    checkpoints and other background work of an embedded store, in a thread of its own: it holds up no
                  writer
    concurrent    many threads offering to one replicated topic
    database      databases in an embedded store: each keeps its journal in an internal topic of its own
    driver        driving the engine from many threads, blocking: group commit by leader and followers
    findings      what an open store has found out about itself, for whoever runs it
    housekeeping  the housekeeping thread of an embedded store: what time asks for, while nobody calls
    journal       `TopicJournal`: the Journal port bound to an internal topic of the store
    ledgerq       directories of ledgerq, another queue: into topics, and out of them
    lock          the one lock of a store: who holds it, and taking it back after a system call
    moving        orders of an embedded store carried out, in a thread of its own
    readers       threads that wait for news of a topic, woken by whoever publishes them: nobody looks again and
                  again
    records       records of an embedded store that are named by their seqs, as jobs are
    rounds_feed   what a watch is told by a store in this process, to a thread
    store         `open` and `Store`: a data directory in the caller's process
    weaver        weaver stores in an embedded store: log and state each in an internal topic of their own
    why           `why` of a store that is open: how it stands by the engine, and what became of it by the files
"""
