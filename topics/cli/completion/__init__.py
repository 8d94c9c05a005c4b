"""Completion for the shell: names of what is there, looked up within a second and without a word of errors (decision
112).

lookup  the names that are there, from a server or from the files of a directory
shells  what bash and zsh are given: their words end elsewhere than ours, and behind `NAME=` a value follows
types   kinds of parameters, and what each of them may be completed to
"""
