"""The engine driven by Trio: writer threads, submit, reads, waiting readers, alarms, metrics (architecture 3 and 4)."""
