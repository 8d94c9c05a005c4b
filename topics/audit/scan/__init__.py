"""One file to one row, in any process.

columnscan   what the `.col` and `.del` of a segment say, against its records: part of the segment's row
             (`segmentscan`)
flaws        the flaws that a scan finds in one file: of each check a bounded list, and how many there are
rows         what a scan says of a file, and what a check says of what is wrong: plain values that cross
             processes
scan         files to rows, in this process or in several
segmentscan  one segment to one row: every checksum, and whether `.idx` and `.col` say what `.data` holds
walscan      one file of the log to one row: what recovery's own `look` says of it, and the checksum of each
             record
"""
