"""Stages and the references between them."""
