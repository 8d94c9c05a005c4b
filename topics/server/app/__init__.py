"""The other plane: Quart-Trio on Hypercorn, for HTTP/2 and for pages (architecture 5).

connection  a connection that Hypercorn's protocols speak: this carries their bytes, their time and their tasks
exchange    one request of the second plane: from an ASGI scope to the site's answer, body and disconnect
            included
handover    the hand-over: what the data plane does not serve goes to Quart on Hypercorn, with every byte it has
            not consumed
http1       HTTP/1.1 as Hypercorn speaks it, for pages and unknown paths: one request a connection, and nothing
            but HTTP
http2       HTTP/2 as Hypercorn speaks it, with the gaps closed that a client could break a connection or the
            server through
pages       the dashboard, a folder of files, and the application that serves it beside the API: Quart on Trio
tasks       the tasks of a connection that Hypercorn's protocols speak, and how many requests are under way in
            all of them
turns       what of HTTP/2's streams waits to be sent, and whose turn it is
"""
