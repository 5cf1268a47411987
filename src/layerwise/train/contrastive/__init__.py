"""Contrastive training of sentence embeddings: text to batches, objectives that add up to a loss, a student to a model."""
