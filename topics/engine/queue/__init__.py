"""Jobs handed out and given back (queues 3, 4): the allocators' side of a queue; what the log says is in `log.jobs`.

claim    claims, those that wait too, and the pass that deals ready jobs out to them
control  pausing, resuming and purging a queue, and looking at it
rank     ready jobs by their priorities
ready    the order in which ready jobs are handed out
settle   ack, nack, extend, and what a worker that went away had
waiting  who waits for jobs of a queue, and what of it is on its way
"""
