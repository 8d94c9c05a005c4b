"""What a server adds to the engine on Trio (`embed.aio`): its log, its metrics, backups on their way to a client.

backup     a backup on its way to a client: read in a thread, a piece when the last one has been taken
figures    what a server has counted, copied on the loop, where alone it holds still
latency    how long requests took, by route
log        the server's log: events with fields, one a line on stderr
metrics    metrics: what the server counts, as Prometheus text or as JSON
tracing    traces of requests for OpenTelemetry, sent to a collector
"""
