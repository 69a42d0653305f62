"""Blocks between hosts: each host serves the blocks in its shared memory over TCP, and readers pull them.

A host's server (`PeerServer`) records its address in the store (`announce`, `resolve`). A reader (`PeerClient`) pulls
ranges, or a whole block into its own host's shared memory. Both prove that they hold the run's key (`wire`). Members
that cannot be dialled are reached through the gateway of the reader's host (`peers.gateway`).
"""

from __future__ import annotations

from .client import PeerClient
from .connection_pool import FailedAddress
from .host_directory import HostDirectory, announce, resolve, through
from .messages import Want
from .server import PeerServer

__all__ = ["FailedAddress", "HostDirectory", "PeerClient", "PeerServer", "Want", "announce", "resolve", "through"]
