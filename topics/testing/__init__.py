"""A world that can be stopped, broken and repeated: simulated clock, randomness and disk. Imports kernel only."""
