"""Data directories as files: looked at, checked, copied.

adopt   `adopt-cold`: of several copies of a data directory, this one goes on with the cold tier (decision 26)
backup  `backup`, `verify` and `restore`: a copy of a store that is being used, whether it is whole, and a store
made of it
check   `fsck` and `inspect`: is a data directory whole, and what is in one of its files
"""
