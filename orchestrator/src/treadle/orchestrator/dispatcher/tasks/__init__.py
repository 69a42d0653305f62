"""The inputs of tasks, and the totals of their outcomes."""
