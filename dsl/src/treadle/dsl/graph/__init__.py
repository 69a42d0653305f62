"""Stages, the functions they name, and the references between them."""
