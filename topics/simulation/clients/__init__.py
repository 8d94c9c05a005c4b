"""Simulated clients of the server: what they speak, and what they were told.

client         one simulated client: it comes, speaks as the seed says, well or badly, and goes, often too early
http_messages  HTTP/1.1 as the simulated clients speak it: commands and reads as requests, answers read to their last
               byte
wire_claims    what clients were told over the wire, held against what the engine had promised before it was sent
"""
