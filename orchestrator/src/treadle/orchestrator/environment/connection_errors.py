"""Converts failures to reach Temporal to treadle's own errors."""

from __future__ import annotations

import re

from treadle.primitives.errors import TreadleError


class Unreachable(TreadleError):
    """Temporal cannot be used at the address: it does not answer, or it refuses this client (exit code 5)."""


_RETRY = "Check the address and that the server is up, then try again."
_TLS = (
    "Check tls (server_name, server_ca_cert_path, client_cert_path, client_key_path) of the profile or TEMPORAL_TLS_*."
)
_NO_TLS = "Set tls = { disabled = true } in the profile, or unset TEMPORAL_TLS and TEMPORAL_API_KEY."
_NOT_GRPC = "Give the gRPC address (usually port 7233), not the UI's or a proxy's."
_KEY = "Check the API key (TEMPORAL_API_KEY, or api_key_secret of the profile) and that it is meant for this namespace."

# The SDK reports every failed connection as one RuntimeError, so only its text distinguishes them.
_TEXTS = (
    ("ConnectionRefused", "nobody listens there", _RETRY),
    ("dns error", "the host name is not known", "Check the spelling of the host."),
    ("InvalidContentType", "it does not speak TLS, but the settings ask for it", _NO_TLS),
    ("InvalidCertificate|BadCertificate|UnknownCA|CertificateRequired", "the TLS certificate is refused", _TLS),
    ("PermissionDenied|Unauthenticated", "it refuses this client", _KEY),
    ("HTTP status code|Unimplemented", "what answers there is not Temporal", _NOT_GRPC),
    ("ConnectionReset|broken pipe|transport error", "it closed the connection, as a server that wants TLS does", _TLS),
    ("TimedOut|timed out|deadline", "it does not answer in time", _RETRY),
)


def unreachable(address: str, text: str) -> Unreachable:
    """The error for a failed connection, with cause and remedy from the SDK's text."""
    for pattern, meaning, hint in _TEXTS:
        if re.search(pattern, text, re.IGNORECASE):
            return Unreachable(f"cannot use Temporal at {address}: {meaning}", hint)
    return Unreachable(f"cannot use Temporal at {address}: {text}", _RETRY)


def unknown_namespace(address: str, namespace: str) -> Unreachable:
    """The error for a server that lacks the namespace."""
    return Unreachable(
        f"Temporal at {address} has no namespace {namespace!r}",
        f"Check the spelling, or make it: temporal operator namespace create -n {namespace} --retention 30d",
    )
