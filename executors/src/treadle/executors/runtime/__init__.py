"""The task runtime: the same code on every executor."""
