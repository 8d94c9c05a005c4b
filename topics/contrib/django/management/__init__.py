"""Where Django looks for commands.

commands  a module a command
"""
