"""treadle's task runtime and the places where tasks run."""
