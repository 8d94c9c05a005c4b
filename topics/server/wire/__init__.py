"""The data plane: HTTP/1.1 exactly as architecture 5 says, on any byte stream.

connection          requests in their order, and where another protocol takes over
resting, tasks      a task while there is something to serve, and at rest nobody; tasks that serve one after another
link                the connection as bytes, and how long its peer is waited for (`patience`)
receiving, watch    what came and is not taken yet; reading ahead while a handler waits
sending, streaming  answers on their way; those that are not held
bodies              the body of a request, as it comes
head, chunks, answers   HTTP/1.1 as bytes, without any of it being read or sent
handshake, websocket    a request for one, accepted; a connection that has become one: messages in
websocket_sender, frames    what is sent to one; its frames, and the messages that they are
again               the last head with its whole body, once more: served without a task
edges, poller       sockets, and TLS over one; one epoll instance for all sockets
patience            how long a peer is waited for: the phases of a connection, and the bounds on slowness in
                    each
"""
