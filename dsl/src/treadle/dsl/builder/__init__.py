"""Workflows written in Python."""
