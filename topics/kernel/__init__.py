"""Words everyone shares. Knows no bytes, no policy and no operating system."""
