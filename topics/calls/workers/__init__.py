"""Who does the jobs of a queue: takes them, extends their leases, and tells what became of them (queues 6).

leases        when a lease is extended, and when it is lost
worker        `Worker`: jobs done by threads
async_worker  `AsyncWorker`: jobs done by tasks
"""
