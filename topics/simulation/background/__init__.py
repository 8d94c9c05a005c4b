"""Background work in a simulation, which goes on a step now and a step then, and what it leaves behind.

backups     backups in a simulation: cut in one work, read in a later one, and whatever happens in between is the test
checkpoint  background work in a simulation: at once, or a step now and a step then, with anything in between
"""
