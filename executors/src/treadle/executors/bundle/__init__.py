"""The project's code, content-addressed: built at submit, opened by workers."""
