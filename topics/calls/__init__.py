"""Every call once: its signature, the engine's command it is, its HTTP messages, and when they are repeated.

The embedded store, the clients and the command line are made from it, so names, parameters, docstrings, values and
errors are the same at all of them. Nothing here knows a socket or a disk, and only producers and
workers wait for anything.

    call            what a call is; how one, or several in turn, are carried out in a process and over HTTP
    records         the calls on the records of a topic
    consumers       the calls on the durable consumers of a topic
    queues          the jobs of a queue: the calls on them, and they as values
    definitions     the calls on what acts on topics by itself: schedules, routers
    topics          the calls on topics, and on a store as a whole
    blocking        `Topic`, and `TopicStore`, which `Store` and `Client` are: the calls as methods
    awaiting        `AsyncTopic`, and `AsyncTopicStore`, which `AsyncClient` is: the same, to be awaited
    methods         what makes methods of calls
    producing       records put one after the other and written together: producers
    workers         who does the jobs of a queue
    watching        topics as they grow, live
    retry           a request repeated as often as that is safe; a list page by page
    patience        when it is repeated, and for how long; a store that is away
    intake          a caller's values as columns of stored bytes
    page            what a read gives
    messages        values as bodies of requests, answers as values
    trouble         what goes wrong on the way
"""
