"""Training: recipes, data, the student, the engine."""
