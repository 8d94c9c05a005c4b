"""Whose news is told first when there is more of it than time (semantics 10). Pure: no clock, no task.

bands     five ranges of priority, and the share of each
priority  a topic's priority: as configured, or by how lately it was read; and what waiting adds
ready     topics with news to tell, each once, and whose turn it is
governor  how overloaded the process is, from 0 to 1, and what is left off then
"""
