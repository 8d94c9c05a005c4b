"""What goes in and out: files, formats, a terminal, times and sizes as people write them.

feed        formats: a source's bytes as payloads, each JSON text with the number of its line
interrupts  ctrl-C while something is written: never in the middle of a write
lines       how a record and a tombstone look on one line: for people, or as JSON
paths       paths that a command is given, and files that it writes
quantities  sizes, durations and moments, as people write and read them
source      bytes of a file or of standard input, gzip or not, as numbered lines
terminal    what a terminal gets and a pipe does not: colours, tables that fit, progress
"""
