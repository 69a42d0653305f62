from __future__ import annotations

from primitives.wire.fixtures import folder, identity, no_leaks, refusing, tls

__all__ = ["folder", "identity", "no_leaks", "refusing", "tls"]
