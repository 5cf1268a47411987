"""Scores: how well embeddings agree with people."""
