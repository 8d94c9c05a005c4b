"""What a lattice is, where a value of one lives, and its times.

algebra  the plain ones: max, last-writer-wins, map, set, tuple
laws     the laws of a lattice as functions, to be held against any value that joins
cursor   a place that holds a value; forks that go their own way and are brought back by sync
stamps   how a write is stamped, and what becomes of stamps from the future
"""
