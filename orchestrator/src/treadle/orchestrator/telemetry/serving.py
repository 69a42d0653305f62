"""A page of metrics for Prometheus, on loopback unless told otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from treadle.primitives.errors import UsageError


@contextmanager
def metrics_page(address: str) -> Iterator[str]:
    """Serve `http://HOST:PORT/metrics` meanwhile; the address in use. Port 0: any free one.

    To be entered before the first Telemetry is made. Raises UsageError for an address that cannot be served, and
    without the extra `metrics`.
    """
    host, port = _parsed(address)
    try:
        from opentelemetry import metrics
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from opentelemetry.sdk.metrics import MeterProvider
        from prometheus_client import start_http_server
    except ImportError as error:
        hint = "Install it: pip install 'treadle-orchestrator[metrics]'"
        raise UsageError(f"metrics need {error.name}, which is not installed", hint) from error
    provider = MeterProvider([PrometheusMetricReader()])
    metrics.set_meter_provider(provider)
    try:
        server, thread = start_http_server(port, host)
    except OSError as error:
        raise UsageError(f"metrics cannot be served at {address}: {error.strerror}", "Choose another port.") from error
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        provider.shutdown()


def _parsed(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise UsageError(f"--metrics {address!r} is no address", "Write HOST:PORT, such as 127.0.0.1:9464.")
    return host or "127.0.0.1", int(port)
