"""The truth: every intention that a node accepted, and the order in which it witnessed them (replication 5.2, 5.3).

intention_store  `IntentionStore`
intake           a batch on its way from accepted to witnessed
floating         intentions that wait for others
witness          the witness log
journal_items    what the journal holds, an item a fact
replay           from a journal to the tables
report           what became of what was handed in, an answer an item
settled          what is left of a pruned intention
"""
