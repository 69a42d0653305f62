"""Collectives for user functions that run as a gang: broadcast, reduce, shuffle, barrier (docs/channels.md)."""

from .gang import Gang as Gang
from .gang import taking_part as taking_part
