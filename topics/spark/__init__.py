"""Spark over topics: `format("topics")` for batch, stream and sink (spark 1 to 3).

Nothing of it is imported by the rest of the package, and pyspark only by what needs it: everything else works without.

    audits      fsck by Spark: the same scan, the same checks and the same rows of findings, over any number of
                machines
    datasource  `format("topics")`: the data source that Spark asks for plans and batches
    directory   a data directory, or a backup, as a place to read from: no server, no lock, and nothing in it is
                changed
    executor    what an executor does of a validation: it scans files, each to one row
    fetch       reading pieces of a directory: what an executor does
    filters     filters that Spark pushes down, as bounds on topic, offset and timestamp
    lags        how far behind the head the streams are that read topics: the places that their checkpoints hold
    main        `spark-submit … topics/spark/main.py validate …`: the commands of `topics spark` in a Spark that
                spark-submit starts
    options     the options of `format("topics")`: text from a user, to values that are checked
    overview    what is in topics, by Spark, as a page of figures; and their records as Parquet
    place       what a driver asks of the place that holds the topics, be it a directory or a server; and what a
                read of it covers
    run         one run of the sink, and until when the topics it writes to know what it has written
    scan        what is common to a batch and a stream: from ranges of seqs to tasks, and from a task to Arrow
                batches
    server      a server as a place to read from: by diff reads, as any client
    session     java, and sessions of Spark that know topics
    sink        the sink: rows of a frame, batch or stream, appended to topics of a server
    spans       which bytes of which files a range of a topic's seqs is: what a driver plans and an executor reads
    stream      the stream reader: `readStream.format("topics")`
    writers     spark's two writers, batch and stream, over the sink
"""

from topics.spark.session import losses, register

__all__ = ["losses", "register"]
