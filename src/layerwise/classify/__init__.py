"""Linear classifiers on fixed embeddings, many at once."""
