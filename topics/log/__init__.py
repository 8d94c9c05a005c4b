"""One topic: its index, its floors and what a read of it finds. Knows frames as columns; knows no shard and no file."""
