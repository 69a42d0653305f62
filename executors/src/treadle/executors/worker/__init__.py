"""The warm worker process."""
