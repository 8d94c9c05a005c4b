"""The server: an engine, its writer threads and two planes on one port (architecture 4 and 5).

`runtime` owns the engine and every task beside it. `api` is the one route table: it knows requests and answers as
values and no protocol. `wire` (HTTP/1.1 on raw streams) and `app` (Quart on Hypercorn: HTTP/2 and pages) both serve it.

    api       what the server answers, whatever plane carries it: one route table, its handlers, and one error table
    app       the other plane: Quart-Trio on Hypercorn, for HTTP/2 and for pages
    assembly  the parts of a server as its settings want them
    auth      who may ask what: keys as they are written, as they are known, and in their file
    descriptors  how many files may be open, and how many of them may be connections
    listener  the port: connections in, each served by a task of its own, all of them known until they end
    main      a whole server: its nurseries, what begins when, and how it ends
    runtime   the engine driven by Trio: writer threads, submit, reads, waiting readers, alarms, metrics
    settings  what a server may be told, checked
    signals   what signals ask of a server: SIGTERM and SIGINT to drain, a second one to drain at once, SIGHUP to
              read again
    systemd   what systemd is told, if it is who started us
    tls       TLS for the listener: certificate files into contexts, handshakes within their time
    wire      the data plane: HTTP/1.1 exactly as architecture 5 says, on any byte stream
"""
