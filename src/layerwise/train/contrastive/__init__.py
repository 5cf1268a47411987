"""Contrastive training of sentence embeddings: text to batches, objectives to a loss, a student to a model."""
