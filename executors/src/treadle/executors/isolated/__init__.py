"""Attempts that share only the store with the driver."""
