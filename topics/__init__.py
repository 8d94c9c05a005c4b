"""topics: a durable event log and job queue that one machine can run and that people trust."""
