"""Bodies of requests, as the commands and queries the engine takes (http-api 1, 4).

encoding  gzip of bodies, in a thread: a MiB of it would hold the loop up for 17 ms (performance 4)
envelope  what is around a command that comes as a message: the fields that any message may have
fields    objects in bodies, field by field: what is known becomes values, whatever else is in there is walked
          over
forms     what the body of a write may look like, and its decoders
known     labels that were checked not long ago, so that a label that comes again is looked up and not checked
          again
metas     the metas of a write: objects of strings, stored as the embedded store would write them
packed    payloads that are bytes: `{"$bytes": BASE64}` in a body
pieces    a large body in pieces, so that no step takes long and nothing is built of what will be refused
writes    the body of a write, as the command the engine takes
"""
