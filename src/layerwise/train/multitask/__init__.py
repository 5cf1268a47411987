"""Training one encoder on several supervised tasks: rows to batches, heads and losses, a student to a predictor."""
