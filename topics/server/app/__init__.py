"""The other plane: Quart-Trio on Hypercorn, for HTTP/2 and for pages (architecture 5)."""
