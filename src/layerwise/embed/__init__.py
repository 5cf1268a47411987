"""Embedding any number of rows: streaming, in constant memory, resumable, on several processes."""
