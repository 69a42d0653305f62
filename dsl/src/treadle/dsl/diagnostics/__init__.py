"""Findings about a document, and their output formats."""
