"""What is kept of the keys: an immutable tree of entries, how two of them join, and their bytes.

edit   a local operation as the smallest entry that says it
entry  what is kept of one key: its normal form, a product of independent joins
merge  two ways to merge: the literal rule of the seed on plain entries, and the join that converges
store  all keys of one database as one immutable value with a join
tree   an immutable map from a 32-byte digest to an item, in which versions share what they have in common
wire   entries as cells: four slots that every peer understands, and one that only this product does
"""
