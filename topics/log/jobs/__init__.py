"""The jobs of a queue: what its leases log says of them, and what time makes of that (queues 2).

backoff      how long a job rests after a delivery that failed
bucket       the tokens of its rate limit
checks       what must hold of all that
image        what a snapshot has of all that
jobs         the projection of the leases log: who holds which job until when, what waits for its time, what is paused
rows         what is known of single jobs, in columns: a row for each that is not simply waiting since it came
states       the states of jobs: changed by the table of `transitions`, counted, and told to who asks
transitions  what may become of a job: the table of its states
"""
