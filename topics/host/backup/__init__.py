"""Backups: what is in one, taking, sending, checking and restoring it.

contents     what a backup is made of: files with their sizes, known before the first byte of them is read
destination  a directory that is to be a backup or a restored store: made under another name, and renamed when
             it is whole
live_backup  a backup of a store that is being used
tarstream    a backup as a tar archive that is made while it is read: its size is known at once, and no more
             than a piece is held
unpacking    a backup that comes as a stream, written to a directory as it comes: every file's checksum is held
             against the manifest
verifying    whether a backup is whole: its manifest, every file, and what a recovery of it would find
"""
