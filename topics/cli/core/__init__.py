"""What one call was given, and how it fails.

early       ctrl-C before `main` is there to answer it: while modules are imported it ends the process without a
            word
failure     what can go wrong in a call of `topics`, said in one line on stderr; and standard streams that are
            not there
group       a group of commands that says what was perhaps meant, where a word is none of them
invocation  what one call of `topics` was given: flags that stand anywhere, settings, and from them the place it
            works on
"""
