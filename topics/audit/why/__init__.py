"""What became of a record, a job, or what a reader has not got: by the log, which is folded as a start folds it.

Log and archive, snapshots and segments go in, values come out (`codec.why`). Nothing is guessed: where the log that
would tell has been removed or was not looked at, that is said, with what is still known.

    asking        the three questions: of a record, of a job, of a reader's range
    events        what the frames of a log say of one seq, in their order
    folding       the fold of one topic, and who watches what it takes
    kept_log      the files of log and archive that are there, as far as they are looked at
    names         which topic, and which router, has a name
    standing      how a record or job stands in a topic, and what a reader is told of it; no file is read
    starts        what a fold can begin with: the topic's creation, or a snapshot
    waiting       what a job waits for
    words         all of it in words: the only place that makes them
    writes        the write that a record came with, and what else its frame says
"""
