"""Which layers: the best combination of them, found exactly and reported honestly."""
