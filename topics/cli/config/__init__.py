"""Flags, environment, topics.toml, defaults.

setting   one setting: what kind of value it takes, how that is written as text and in TOML, and what is said if
          it is not
settings  the settings: one table, four sources
"""
