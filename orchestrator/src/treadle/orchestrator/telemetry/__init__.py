"""Telemetry of a driver: counts and traces (`instruments`), a page for Prometheus (`metrics_server`), logs."""
