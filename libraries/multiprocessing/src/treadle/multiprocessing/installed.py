"""Imported by a fork server whose processes have treadle in the place of `multiprocessing`."""

from .installation import install

install()
