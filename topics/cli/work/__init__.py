"""Jobs of a queue, each done by a command of the user's.

running  one command at work on one job: the payload on its standard input, the rest in its environment
worker   takes jobs, has some done at a time, keeps their leases, and says what became of them
"""
