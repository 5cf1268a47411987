"""`python -m layerwise` is the command `layerwise`."""

from layerwise.cli.app import main

main()
