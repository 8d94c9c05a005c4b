"""The operating system behind the core's ports: files, locks, time, randomness and compressors. Knows no topic."""
