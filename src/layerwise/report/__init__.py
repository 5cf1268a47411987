"""A report that a person opens: what the layers of a model are worth, as one HTML file."""
