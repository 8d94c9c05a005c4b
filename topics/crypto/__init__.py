"""Hashes, keys and identifiers on the libraries that know how: nothing here invents cryptography."""
