"""What the engine does by time alone, and when.

timers  what is due when: one heap of (instant, kind, id), for one clock
timing  what time alone brings: floors that TTL moves, exact heads of rested topics, timed syncs, firings
"""
