"""Many topics on many shards, still pure: commands in, frames and plans out (architecture 3).

apply       `apply`: one frame (or run of frames) folded into the state
batch       what one shard hands to its writer, and how a shard's frames go from assigned to written to synced
checkpoint  what goes from the WAL into segments, and when the state may be kept
commands    wishes
consumers   durable consumers: put one, commit how far it has read, delete it, and look at them
deadlines   what the engine does by time alone, and when
engine      the engine: many topics, many shards, no I/O
image       the whole state as a value, with one place in the WAL a shard: what a snapshot holds
lane        the allocator side of one topic: what propose has promised and apply has not yet done
moving      records on their way from one topic to another: dead letters, and those that go back
propose     which way a command goes: to the topic that stands, behind what it must wait for, or to a name that
            is not there
queue       jobs handed out and given back: the allocators' side of queues
recovery    what the files of a directory say, and what a restart took
replies     answers, one a command
routers     what is copied from one topic into another, and whether that can be
schedules   records that are appended when their time comes
state       everything the engine holds, and the few moves every command is made of: enqueue, park, ride,
            finish, fail
tickets     a proposed command on its way to its reply
verify      the numbered invariants as assertions, and the canonical digest of the state
writing     a write of records, a topic that comes, changes and goes: whether it may be, and what it becomes
"""
