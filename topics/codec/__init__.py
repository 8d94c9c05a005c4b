"""Bytes to values and back. No policy, no state, no I/O: what a value means is decided above."""
