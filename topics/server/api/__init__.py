"""What the server answers, whatever plane carries it: one route table, its handlers, and one error table (http-api).

authorise  who asks, and whether he may: a head against the row it leads to
bodies     bodies of requests, as the commands and queries the engine takes
call       one request on its way through a handler: what was asked, whom to answer, and the helpers every
           handler shares
edge       the one port a connection is spoken through: a socket, TLS over one, or memory
errors     the error table: the one place where a code gets its HTTP status
events     server-sent events: what all streams of them have in common
memory     memory that peers make us hold, in accounts with a bound each
message    a request and an answer as values, the same for every plane
node       what whoever runs the server asks it: alive, ready, metrics, and what it can do
openapi    the API as an OpenAPI 3.1 document, made from the route table
ops        what can be asked over a WebSocket, and one message on its way through its op
origins    which web pages may call, and under which name the server answers
reports    what the log tells of requests: of slow ones, and of all if that is asked
resources  the handlers, a module a resource
routes     the route table and how a request finds its row
schemas    the words that the API is described in: JSON Schema 2020-12, and what every resource says alike
site       the site: what every plane asks, first with a head alone, then with the body
slots      things of which there may be so many at a time, each taken and given back
table      every route and op of the server: a table a resource, each beside its handlers and with the schemas of
           its bodies
watching   topics watched over HTTP: sessions, streams, their events
"""
