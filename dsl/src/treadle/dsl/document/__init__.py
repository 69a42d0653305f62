"""Reads text into a document with positions."""
