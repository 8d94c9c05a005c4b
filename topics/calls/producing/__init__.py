"""Records put one after the other and written together: producers.

async_producer  `AsyncProducer`: batches by a task
batches         records become batches, and batches writes
producer        `Producer`: batches by a thread
"""
