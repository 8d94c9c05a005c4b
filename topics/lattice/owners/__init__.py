"""Whose state it is: signed slots, and who may sign them (replication 4).

authority  who may sign for an owner
owner      a map from owners to their signed slots: the boundary that foreign state has to pass
signed     one owner's slot: envelopes of a payload, the newest of each signer
"""
