"""The product run on one thread against a simulated disk, clock and chance, and checkers that know none of its code."""
