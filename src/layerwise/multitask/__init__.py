"""Several supervised tasks on one encoder: settings, rows, heads, losses, weights, the order of batches, scores."""
