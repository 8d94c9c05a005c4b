"""The jobs of a queue: what is asked of them, what is said of them, and what comes back.

jobs    the calls on the jobs of a queue
checks  what a caller says of jobs, as the commands the engine takes
values  jobs as values: leased, peeked at, answered by a server
"""
