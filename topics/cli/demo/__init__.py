"""`topics demo`, in the order of its telling.

command         the command: its own directory, its server, the five steps, the closing table
input           the file of JSON lines, and the field that its records are tagged by
steps           four of the steps: load, read back, crash, floors
clients         writers and a follower that live on while the server is killed under them
proof           what the writers write, and the proof that all of it is there
private_server  `topics serve` as a child, on a loopback port that it keeps over restarts
work            the other one: jobs, done by workers over kills of the server
story           how it is told: steps, proofs, the closing table; or one line of JSON
"""
