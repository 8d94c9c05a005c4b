"""The server: an engine, its writer threads and two planes on one port (architecture 4 and 5).

`runtime` owns the engine and every task beside it. `api` is the one route table: it knows requests and answers as
values and no protocol. `wire` (HTTP/1.1 on raw streams) and `app` (Quart on Hypercorn: HTTP/2 and pages) both serve it.
"""
