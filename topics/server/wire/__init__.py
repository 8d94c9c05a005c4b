"""The data plane: HTTP/1.1 exactly as architecture 5 says, on any byte stream."""
