"""What must hold, across rows and files.

acknowledged  nothing that a client was told is stored may be missing
acks          what clients were told is stored: their own logs of acknowledgements
archived      what is kept of the log in `archive/`: whole, and without a hole, so that a restore can go through
              it
coldtier      cold segments under a check: which of them nobody could look at, and which are not where they
              should be
consumer_logs  durable consumers by all of the log that is there, `archive/` first: each goes forward by its
              commits
copies        what routers have copied against what it is of, by all of the log that is there, `archive/` first
endings       what reclaiming owes: a flag for each record that was deleted or has expired, and nothing wholly
              below the floor
journals      journals of databases and Weavers: what their records say of each other
leases        who had which job when, by the frames of the log alone: the leases of a queue follow from
              each other
metafiles     the files of a data directory that hold no records: what of them is damaged, and which nobody
              needs
queue_logs    every queue by all of the log that is there, `archive/` first: what leases and letters of it must
              say
records       the live records of a topic, as a reader would get them: for checks that must see data, not only
              that it is whole
router_logs   routers by all of the log that is there, `archive/` first: each joins two topics that are there, or were
row_checks    the checks: each has a name, says what must hold, and gives violations
schedule_logs  schedules by all of the log that is there, `archive/` first: each instant is fired once, and
              later ones later
wrong_types   names of files and directories of topics under which something else lies: a pipe, a socket, a
              link, a directory …
"""
