"""What an intention is: its fields, its signature, its time (replication 5.1, 5.2, 5.4).

intention     one signed change, as bytes that never change again
envelope      what travels and is stored: body and signature, and the gate that both have to pass
hlc           hybrid logical clocks
equivocation  the proof that an author signed two intentions behind one
frontier      the tips below which history is settled
bounds        what a store accepts, and how much it holds back
"""
