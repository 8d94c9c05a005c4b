"""One module a command group.

about       what is set, which version this is, and completion for the shell
adopt       `adopt-cold`: of several copies of a data directory, this one goes on with the cold tier (decision
            26)
backup      `backup`, `verify` and `restore`: a copy of a store that is being used, whether it is whole, and a
            store made of it
check       `fsck` and `inspect`: is a data directory whole, and what is in one of its files
consumer    `consumer`: the durable consumers of a topic, for who looks after them
doctor      `doctor`: whether this machine can hold what topics promises, before anything is trusted to it
exchange    `export` and `import`: topics into files, JSON lines, CSV or Parquet, and into directories of ledgerq;
            and back
key         `key`: who may ask a server what, in a file of keys that holds digests only
leases      `queue claim`, `ack`, `nack` and `extend`: the jobs of a queue by hand, each call a step of its own
manage      topics themselves: `create`, `configure`, `state`, `ls`, `rm`, `delete` for their records, `compact`
            for the space
queue       `queue`: job queues, for who looks after them
read        `get` and `tail`: records to standard output, tombstones where records were lost
router      `router`: what comes into one topic is copied into another
schedule    `schedule`: records that are appended when their time comes
serve       `topics serve`: the server in the foreground, until SIGTERM or Ctrl-C drains it; `topics pressure`: how
            overloaded a running server is
simulate    `simulate`: the deterministic simulation, whose every run is repeated by its seed
spark_jobs  `topics spark`: validate, report and export by Spark, for data that one machine is too slow for
why         `why`: what became of a record or a job, in words, by the log of a data directory and how its topic stands
work        `work`: the jobs of a queue, each done by a command
write       `put`: a file or standard input into a topic
"""
