"""Findings about a document, and how they are shown."""
