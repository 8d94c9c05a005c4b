"""`fsck --repair`: what is kept, what is taken out of use, and a state that says so.

free_space      whether there is room for a repair: asked before it begins, for one that ends on a full disk has
                helped nobody
kept_state      the state that a repair keeps: the read-only view, in which what cannot be had any more is lost
missing_frames  what of the log is gone without a word of whose it was: where, and how many frames at most
offline         repairing a directory of this machine that nobody has open: owned meanwhile, and given free
                again
quarantine      what a repair takes out of use: a directory below the data directory, each file in it under its
                old path
repairing       `fsck --repair`: a directory that holds what its read-only view shows, and opens for writing
                again
salvage         what a repair keeps of a topic's records, written as segments of its own
two_tiers       both places that data may be in under a repair: the data directory, and its cold tier
"""
