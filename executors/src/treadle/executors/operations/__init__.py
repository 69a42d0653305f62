"""One small function for each operation of a program."""
