"""Terasort end to end: one module each, with `start(folder)`, `sort(files, target)` and `stop()`."""
