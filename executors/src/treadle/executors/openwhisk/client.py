"""The HTTP client of OpenWhisk: endpoint, credentials, and the conversion of httpx errors to treadle's errors."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlsplit

from treadle.primitives.errors import StoreError, UsageError
from treadle.primitives.wire import is_loopback

from ..functions.invoker import NotRun

if TYPE_CHECKING:
    import httpx

BLOCKING_SECONDS = 60.0
"""A blocking call is answered within this time (actions.md, "Blocking invocations and timeouts")."""
_CONNECT_SECONDS = 10.0
_GRACE = 15.0
_PROBED = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 15_000),
)
"""Detects a dead host within 15 s (tcp(7)), although a blocking call is silent for up to 60 s."""
_OTHER_HOST = (62, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH (OpenSSL, x509_vfy.h)."""
_NOT_LOOPBACK = "the key of the namespace would travel in clear"


class Reply(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str]
    """Names in lower case."""


class OpenWhiskClient:
    """Requests in one namespace. A reusable async context manager."""

    def __init__(
        self,
        endpoint: str,
        key: str,
        *,
        namespace: str = "_",
        connections: int = 100,
        allow_http: bool = False,
        ca: Path | None = None,
    ) -> None:
        """`endpoint`: such as `https://openwhisk.example.com`; `key`: `UUID:KEY`, as in `~/.wskprops`; `allow_http`:
        the network between here and the endpoint is trusted; `ca`: PEM file of the only authorities that may sign the
        endpoint's certificate, None: httpx's default authorities.

        Raises UsageError for a malformed key, an endpoint that is not a URL, plain HTTP to another host, or a `ca`
        without a certificate.
        """
        user, colon, password = key.strip().partition(":")
        if not (user and colon and password):
            raise UsageError("the key of OpenWhisk is not of the form UUID:KEY", "Copy AUTH from ~/.wskprops.")
        self.url = f"{_checked(endpoint, allow_http)}/api/v1/namespaces/{namespace}"
        self._auth = (user, password)
        self._connections = connections
        self._ca, self._verify = ca, _trusting(ca) if ca is not None else True
        self._http: httpx.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    def open(self) -> httpx.AsyncClient:
        """Raises UsageError when httpx is not installed."""
        if self._http is None:
            try:
                import httpx
            except ImportError as error:
                raise UsageError(
                    "OpenWhisk needs httpx, which is not installed", "pip install 'treadle-executors[openwhisk]'"
                ) from error
            limits = httpx.Limits(max_connections=self._connections, max_keepalive_connections=self._connections)
            self._http = httpx.AsyncClient(
                auth=self._auth,
                timeout=httpx.Timeout(BLOCKING_SECONDS + _GRACE, connect=_CONNECT_SECONDS, pool=None),
                transport=httpx.AsyncHTTPTransport(
                    verify=self._verify, limits=limits, trust_env=False, socket_options=_PROBED
                ),
                trust_env=False,
            )
        return self._http

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def request(self, method: str, path: str, **options: Any) -> Reply:
        """Send a request; `path` is relative to the namespace.

        Raises NotRun when the request was not sent, StoreError when the reply was lost, UsageError for a certificate
        that does not match the endpoint.
        """
        http = self.open()
        import httpx

        try:
            response = await http.request(method, f"{self.url}/{path}", **options)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            if (refused := _refused_certificate(error)) is not None:
                raise _not_trusted(refused, self._ca) from error
            raise NotRun(f"OpenWhisk cannot be reached: {error}", "Check the endpoint.", retryable=True) from error
        except httpx.RequestError as error:  # includes replies that cannot be decompressed
            said = str(error) or type(error).__name__
            raise StoreError(f"a reply of OpenWhisk was lost: {said}", "It may pass.", retryable=True) from error
        return Reply(response.status_code, response.content, response.headers)


def _checked(endpoint: str, allow_http: bool) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{endpoint!r} is no endpoint of OpenWhisk", "Give one such as https://openwhisk.example.com.")
    if parts.scheme == "http" and not allow_http and not is_loopback(parts.hostname):
        raise UsageError(f"{endpoint} is plain HTTP to another host: {_NOT_LOOPBACK}", "Use https, or allow_http.")
    return endpoint.rstrip("/")


def _trusting(ca: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca.expanduser()))
    except OSError as error:  # includes SSLError: the file contains no certificate
        raise UsageError(
            f"`ca` of the OpenWhisk executor names {ca}, which cannot be read as certificates: {error}",
            "Name a PEM file with the certificate of the authority that signed the endpoint's.",
        ) from error


def _refused_certificate(error: BaseException) -> ssl.SSLCertVerificationError | None:
    """Find the certificate error in the chain of causes: httpx wraps the errors of httpcore."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, ssl.SSLCertVerificationError):
        found = found.__cause__ or found.__context__
    return found


def _not_trusted(error: ssl.SSLCertVerificationError, ca: Path | None) -> UsageError:
    said = f"the certificate of OpenWhisk's endpoint is refused: {error.verify_message}"
    if error.verify_code in _OTHER_HOST:
        return UsageError(said, "Give `endpoint` the host name that the certificate has.")
    if ca is None:
        return UsageError(said, "Add `ca`, a PEM file of the authority that signed it, to the executor's table.")
    return UsageError(f"{said} (`ca` is {ca})", "Let `ca` name the authority that signed it, and check `endpoint`.")
