"""Is a data directory whole? Checks that read files and change nothing, what they report, and the repair.

`recovery` asks the code that a start runs, so that nobody decides twice what is a torn tail and what is damage.
Nothing here needs the server, the embedded store or a lock, but `repair`, which owns the directory while it works.

    checks    what must hold, across rows and files
    columnar  many records at once: NumPy and Arrow, imported only where they are installed
    dump      what is in one file, item by item: what `topics inspect` shows
    fsck      `fsck`: is this data directory whole? It reads and changes nothing, and needs no lock
    recovery  what a start would make of the directory, without a change to it: the state that rows are checked
              against
    repair    `fsck --repair`: what is kept, what is taken out of use, and a state that says so
    report    violations for people and for machines
    queue_items  all that the log and the archive tell of one queue, frame by frame
    scan      one file to one row, in any process
    why       what became of a record, a job, or what a reader has not got, by folding the log
"""
