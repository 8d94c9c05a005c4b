"""Jobs of a queue, each done by a command of the user's.

running  one command at work on one job: the payload on its standard input, the rest in its environment
shift    a worker at work until it is told to end, and what became of its jobs
"""
