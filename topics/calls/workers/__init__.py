"""Who does the jobs of a queue: takes them, extends their leases, and tells what became of them (queues 6).

leases        when a lease is extended, and when it is lost
desk          where jobs lie between who brings them and those who do them
sigterm       how SIGTERM stops the workers of a process
claims        jobs of a store in this process, claimed
async_worker  `AsyncWorker`: jobs done by tasks
worker        `Worker`: jobs done by threads
"""
