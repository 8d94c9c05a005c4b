"""Hashes, keys and identifiers on the libraries that know how: nothing here invents cryptography.

did      decentralized identifiers (W3C DID core), as far as owners need them
hashing  BLAKE3: the one hash of everything that is signed, compared or named by its content
keys     ed25519 keys, and what a valid signature is (RFC 8032; replication 5.1, 13)
"""
