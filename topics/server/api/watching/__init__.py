"""Topics watched over HTTP, as server-sent events (http-api 9).

frames    the events of a watch, and the ids by which a client says how far it has come
sessions  watches by their ids: they outlive the streams that serve them
stream    the stream of a session: what goes out next, and how it ends
"""
