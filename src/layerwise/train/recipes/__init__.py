"""Recipes: the format of their files, and the recipes that are shipped."""
