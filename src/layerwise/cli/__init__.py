"""The command line: parses, calls the library, prints. One short module a command; heavy imports inside them."""
