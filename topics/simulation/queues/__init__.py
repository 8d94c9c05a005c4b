"""The queues of a simulation: what workers ask of them, what they were told, and whether it still holds.

job_claims         what workers were told of the jobs of a queue, and whether it still holds
job_workload       what simulated workers ask of queues: they claim, wait, settle, answer late
"""
