"""Many topics on many shards, still pure: commands in, frames and plans out (architecture 3)."""
