"""What a simulated store does beside its writes: checkpoints, orders and backups, a step now and a step then.

backups     backups in a simulation: cut in one work, read in a later one, and whatever happens in between is the test
checkpoint  background work in a simulation: at once, or a step now and a step then, with anything in between
"""
