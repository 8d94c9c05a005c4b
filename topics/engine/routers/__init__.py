"""Routers: what comes into one topic is copied into another (semantics 8).

catching_up  who reads a dest waits until it has what its source holds
copies       the columns of a copy: what a record keeps when a router brings it over
definitions  putting a router and deleting it: frames on shard 0, synced, one change at a time
following    what routers bring over of a write: planned with it, and in the log right behind it
late         routers that are late: what was left behind is brought over by orders
looking      what there is to be told of routers
orders       what a driver is asked to bring over
reading      a read that waits for that
route        a router on its way from topic to topic: the allocator's side of one
routes       the routers that stand, as routes between lanes
settling     what a router has on its way is there before it is another one, or ends
"""
