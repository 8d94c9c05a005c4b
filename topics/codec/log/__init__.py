"""The frames of the log, and its files.

addressing  the frames of a run again, for another topic
building    a run that grows as frames are read: lists, turned into the narrowest columns when it closes
consumers   CONSUMER_COMMIT frames: where the durable consumers of a topic stand, one frame a change
control     control frames: everything the log says that is not a record
encode      columns to frames
forwards    FORWARD frames: the head of a write by which a router brings records over
frame       append frames as records
layout      the layout of a WAL frame, and what can be wrong with one
leases      LEASE frames: what happened to the jobs of a topic, one frame a claim pass or settlement
newer       whether a newer version wrote a whole frame
resync      finding whole frames past damage, and marks wherever they lie
routers     ROUTER_CREATE and ROUTER_DELETE frames: what a router is, and that it ends
run         a run: consecutive appends of one topic as columns, never an object a record
scan        reading a WAL file as it was written: frames to runs and control values, whole writes only
schedules   SCHEDULE frames: what a schedule is, and the id by which a record is its firing
walheader   the header of a WAL file: who wrote it, and where it stands in its shard
writes      a WAL file write by write: where each begins and ends, when it was made, and how far it took each
            topic
"""
