"""One module a command group.

about       what is set, which version this is, and completion for the shell
consumer    `consumer`: the durable consumers of a topic, for who looks after them
directory   `fsck`, `inspect`, `backup`, `verify`, `restore`, `adopt-cold`: data directories as files
doctor      `doctor`: whether this machine can hold what topics promises, before anything is trusted to it
exchange    `export` and `import`: topics into files, JSON lines, CSV or Parquet, and into directories of ledgerq;
            and back
key         `key`: who may ask a server what, in a file of keys that holds digests only
manage      topics themselves: `create`, `configure`, `state`, `ls`, `rm`, `delete` for their records, `compact`
            for the space
queues      `queue` and `work`: job queues, for who looks after them, and who does their jobs
read        `get` and `tail`: records to standard output, tombstones where records were lost
router      `router`: what comes into one topic is copied into another
schedule    `schedule`: records that are appended when their time comes
serve       `topics serve`: the server in the foreground, until SIGTERM or Ctrl-C drains it; `topics pressure`: how
            overloaded a running server is
simulate    `simulate`: the deterministic simulation, whose every run is repeated by its seed
spark_jobs  `topics spark`: validate, report and export by Spark, for data that one machine is too slow for
why         `why`: what became of a record or a job, in words, by the log of a data directory and how its topic stands
write       `put`: a file or standard input into a topic
"""
