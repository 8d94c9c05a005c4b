"""The command line, on a directory or at a server: one module a command group.

What the operating system, click and rich do stays in this package. A command is imported when it is called, so that
`topics --help` costs an interpreter and click, and nothing else.

| module | what it holds |
|---|---|
| `early` | Ctrl-C while modules are imported |
| `main` | the table of commands, `main()`, exit codes |
| `failure` | errors as one line, standard streams that may be closed |
| `invocation` | what one call was given: flags, settings, the place it works on |
| `place`, `port` | a directory or a server, opened; what commands need of either |
| `backup`, `known` | `backup`, `verify`, `restore`; what a store knows to be damaged |
| `settings`, `setting` | flags > environment > topics.toml > defaults; what a setting takes |
| `serve` | the server |
| `write`, `gently`, `feed`, `source` | `put`: stopping, files, formats, bytes |
| `terminal`, `quantities` | colours, tables, progress; sizes, times, durations as people write them |
| `read`, `following`, `lines` | `get`, `tail`, waiting for more, and how a record looks |
| `manage` | `create`, `configure`, `state`, `ls`, `rm`, `delete`, `compact` |
| `about` | `config show`, `version`, `completion` |
| `demo`, `story`, `tour`, `crash`, `victim` | the guided main job: steps, proofs, a killed process |
| `served`, `private` | the same through a server that is killed; a server of one's own |
"""
