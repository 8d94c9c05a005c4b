"""What the server answers, whatever plane carries it: one route table, its handlers, and one error table (http-api).

message, edge       requests, answers and byte streams as values and ports
site                what a plane asks, first with a head alone, then with the body
origins, memory     which pages may call; what peers may make us hold
state, call         the server, and one request, as handlers see them
topics, records, reads, node, backup    a resource each: handlers, schemas, rows
table, routes       the rows together; how a path finds its row
schemas, openapi    the words of a description, and the document
errors              a code's status
bodies/             from the bytes of a body to values
"""
