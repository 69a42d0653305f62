"""What a driver tells its operators: counts and traces (`instruments`), a page for Prometheus (`serving`), logs."""
