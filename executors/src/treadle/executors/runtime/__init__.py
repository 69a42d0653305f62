"""The task runtime: the same code wherever a task runs."""
