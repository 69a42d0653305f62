"""`tcp://host:port` on loopback, `tls://host:port` anywhere, `unix:name` between processes of one host."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

from .errors import UsageError


class Address(NamedTuple):
    scheme: str
    """`tcp`, `tls` or `unix`."""
    host: str
    """For `unix`: the abstract name (unix(7)). It belongs to no file and disappears with its listener."""
    port: int

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix:{self.host}"
        return f"{self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def parse(address: str, *, plain: bool = False) -> Address:
    """Split an address into its parts.

    Raises UsageError for text that is not an address, and for `tcp://` off loopback: traffic that crosses a network is
    encrypted. `plain` allows `tcp://` where the network itself is private to the caller.
    """
    try:
        parts = urlsplit(address)
        if parts.scheme == "unix" and not parts.netloc:
            return Address("unix", parts.path, 0)
        found = Address(parts.scheme, parts.hostname or "", -1 if parts.port is None else parts.port)
    except ValueError:
        found = Address("", "", -1)
    if found.scheme not in ("tcp", "tls") or not found.host or found.port < 0:
        raise UsageError(f"{address!r} is not an address", "Write tcp://host:port or tls://host:port.")
    if found.scheme == "tcp" and not plain and not is_loopback(found.host):
        raise UsageError(f"{address} is not on loopback and would not be encrypted", "Use tls:// there.")
    return found


def is_loopback(host: str) -> bool:
    """Return whether a host, by its spelling, can only be this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
