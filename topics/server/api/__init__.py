"""What the server answers, whatever plane carries it: one route table, its handlers, and one error table (http-api)."""
