"""Queues, and the jobs in them.

queue   `queue`: job queues, for who looks after them
leases  `queue claim`, `ack`, `nack` and `extend`: the jobs of a queue by hand, each call a step of its own
work    `work`: the jobs of a queue, each done by a command
"""
