"""Records on their way from one topic to another: dead letters, and those that go back (queues 3, 4).

dead_letter  the topic that takes a queue's dead letters: which one it may be, and that it is made with the queue
letters      the append that a record arrives by: its provenance, and the id by which a repeat is told
moves        intent, append, end: what is under way into each topic, and the orders that drivers carry out
orders       what a driver is asked to move, and what is known of a topic that records go to
redrive      putting dead letters back: the pair of a dead letter, the other way round
"""
