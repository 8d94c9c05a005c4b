"""Slots of an index as what they stand for moves, or ends.

leaving  long runs of dead slots leave the index, once nobody needs their places
places   where the frames of an index's slots lie in their file, when that changes
"""
