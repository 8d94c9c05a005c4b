"""The handlers, a module a resource (http-api 3 to 11).

backup   what keeps a store safe: a checkpoint now, a backup of it
consumers  positions that the server keeps for those who read
job_ops  the jobs of a queue over a WebSocket; with jobs that are pushed
jobs     the jobs of a queue: claim, ack, nack, extend, peek, pause, resume, purge
keys     whom the server lets in, what each may and does now
pressure  how overloaded the server is, and what is left off because of it
reads    a page of records, waited for if asked
records  records written and deleted
routers    what comes into one topic is copied into another: put, look, list, delete
schedules  records that are appended when their time comes: put, look, list, delete
sockets  the path of the WebSocket, and what concerns no resource there
state    a server as its handlers see it: its options, what it counts, and the runtime once the log is recovered
topics   topics themselves: put, state, list, delete
watch    topics watched: what a watch asks, sessions and streams of server-sent events
watch_ops  topics watched over a WebSocket
why      what became of a record, a job, or what a reader has not got
work     jobs pushed as server-sent events
"""
