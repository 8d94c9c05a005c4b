"""Completion for the shell: what stands there is asked for, silently and in bounded time (decision 112).

bash    bash's side: its words end at `=` and `:`, ours do not
lookup  the names that are there, from a server or from the files of a directory
types   kinds of parameters, and what each of them may be completed to
"""
