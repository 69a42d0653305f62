"""Attempts that share nothing with the driver but the store."""
