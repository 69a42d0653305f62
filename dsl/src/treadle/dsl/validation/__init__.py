"""Checks of a document before it runs."""
