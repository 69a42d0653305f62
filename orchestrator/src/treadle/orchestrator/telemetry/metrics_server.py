"""A page of metrics for Prometheus. The default is loopback."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import WSGIApplication

from treadle.primitives.errors import UsageError
from treadle.primitives.log_rate_limit import limited_logger
from treadle.primitives.wire.unauthenticated import Strangers, allowance

_log = limited_logger("treadle.listeners")
CONNECTIONS = 64
"""Maximum of connections, each with a thread. A further one replaces the oldest."""
REQUEST_SECONDS = 10.0
"""Seconds from a reader's connection until it has its page."""
_PAUSE = 0.1


@contextmanager
def metrics_page(address: str) -> Iterator[str]:
    """Serve `http://HOST:PORT/metrics` within this context. Yields the URL in use. Port 0: any free port.

    Enter it before the first Telemetry is made. Raises UsageError for an address that cannot be served, and without the
    extra `metrics`.
    """
    host, port = _parsed(address)
    try:
        from opentelemetry import metrics
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from opentelemetry.sdk.metrics import MeterProvider
        from prometheus_client import make_wsgi_app
    except ImportError as error:
        hint = "Install it: pip install 'treadle-orchestrator[metrics]'"
        raise UsageError(f"metrics need {error.name}, which is not installed", hint) from error
    provider = MeterProvider([PrometheusMetricReader()])
    metrics.set_meter_provider(provider)
    try:
        server = MetricsServer(host, port, make_wsgi_app())
    except OSError as error:
        raise UsageError(f"metrics cannot be served at {address}: {error.strerror}", "Choose another port.") from error
    thread = threading.Thread(target=server.serve_forever, name="treadle-metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        provider.shutdown()


class MetricsServer(ThreadingMixIn, WSGIServer):
    """Serves each request in a thread. Readers do not authenticate, so each counts as a stranger until it has its
    page."""

    daemon_threads = True
    request_queue_size = 4096

    def __init__(self, host: str, port: int, app: WSGIApplication) -> None:
        """Start to listen. Raises OSError."""
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._lock = threading.Lock()
        self._readers: Strangers[socket.socket] = Strangers(allowance(CONNECTIONS), REQUEST_SECONDS, grace=0.05)
        super().__init__((host.strip("[]"), port), _Handler)
        self.set_app(app)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError as error:
            _log.warning("metrics at port %s: no connection can be accepted: %s", self.server_port, error.strerror)
            self._end(self._readers.oldest())
            time.sleep(_PAUSE)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Waits in the accepting thread while all readers are in their grace time."""
        while len(self._readers) >= self._readers.most:
            now = time.monotonic()
            with self._lock:
                found, wait = self._readers.past_grace(now), self._readers.next_grace(now)
            self._end(found)
            if found is None:
                time.sleep(wait)
        with self._lock:
            self._readers.add(request, time.monotonic())
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._readers.remove(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End overdue readers. Called twice a second."""
        with self._lock:
            late = self._readers.expire(time.monotonic())
        for one in late:
            self._end(one)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        _log.debug("a reader of metrics: %s", sys.exception())

    def _end(self, reader: socket.socket | None) -> None:
        """Shut the connection down. Its thread notices that and closes it."""
        if reader is not None:
            _log.warning("metrics at port %s: connections were ended that did not read in time", self.server_port)
            with suppress(OSError):
                reader.shutdown(socket.SHUT_RDWR)


class _Handler(WSGIRequestHandler):
    """Logs nothing, since readers come every few seconds and do not authenticate."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _parsed(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise UsageError(f"--metrics {address!r} is no address", "Write HOST:PORT, such as 127.0.0.1:9464.")
    return host or "127.0.0.1", int(port)
