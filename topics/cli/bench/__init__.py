"""`topics bench`: the same load for topics and for what one would take instead, measured in turns (decision 113).

command      the command: which systems, how long, and what is printed
systems      the table of systems: how each is started, and what an acknowledgement of it means
workloads    the table of workloads, and how one is run
rounds       systems and workloads by turns, and the medians of it
connection   what a system must be able to do, and sockets with lines
ours         a server of topics, over HTTP
redis        a stream of Redis, with a consumer group
nats         streams of NATS JetStream, and NATS without it
rabbitmq     quorum queues of RabbitMQ
beanstalkd   tubes
in_process   a store of topics, SQLite, and queues that are libraries
processes    servers of one's own: started, looked at, ended by pid
payload      what is written
machine      what a figure must be read beside
report       the table, JSON and the HTML page
"""
