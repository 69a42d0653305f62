"""Imported by a fork server, before the libraries of the program."""

from .places import forbid

forbid()
