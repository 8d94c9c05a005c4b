"""Schedules: records that are appended when their time comes (queues 4).

alarm        what is known of a schedule beyond what the log says: which instant is fired next
definitions  putting a schedule and deleting it: frames on shard 0, synced, with the topic to themselves
firing       what is fired next, and when: one deadline a schedule, and one record on its way
instants     the instants of a schedule: from the calendar or by arithmetic, the missed ones, what jitter makes of one
looking      what there is to be told of schedules
"""
