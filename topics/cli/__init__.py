"""The command line, on a directory or at a server.

What the operating system, click and rich do stays in this package. A command is imported when it is called, so that
`topics --help` costs an interpreter and click, and nothing else.

    bench     `topics bench`: topics and others under the same load, by turns
    commands  one module a command group
    completion  what stands behind the cursor, for the shell
    config    flags, environment, topics.toml, defaults
    core      what one call was given, and how it fails
    demo      `topics demo`, in the order of its telling
    exchange  records into a topic, out of it into a file, and back
    io        what goes in and out: files, formats, a terminal, times and sizes as people write them
    main      the table of commands, and `main`: one call of `topics`
    target    the place a command works on: a directory or a server, opened
    work      jobs of a queue, each done by a command
"""
