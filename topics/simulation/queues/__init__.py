"""The queues of a simulation: what workers ask of them, what they were told, and whether it still holds.

job_claims         what workers were told of the jobs of a queue, and whether it still holds
job_requests       what is said of jobs, as clients say it: over HTTP, and as a message of a WebSocket
job_workload       what simulated workers ask of queues: they claim, wait, settle, answer late
queue_history      who had which job when, by the log alone: what `fsck` says of the queues on a simulated disk
socket_speaker     a WebSocket over memory from the client's side
socket_worker      a worker on a WebSocket: it has jobs pushed, claims, settles, answers late, and goes, well or badly
waiting_claims     nobody waits for what is there: a claim that waits, and a job that may be claimed now
wire_jobs          what workers were told of jobs over the wire, held against what the engine had promised before it
                   was sent
"""
