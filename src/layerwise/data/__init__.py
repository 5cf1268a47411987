"""Files to rows, and the data that comes with the package."""
