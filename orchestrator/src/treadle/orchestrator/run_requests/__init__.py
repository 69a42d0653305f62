"""Requests of clients about runs, and Temporal's answers, as plain values without the Temporal SDK.

requests       the requests, their answers and their encoding
run_views      a run, its running nodes and its end
driver_server  the socket at which the embedded driver answers requests
driver_client  a command's side of that socket

`temporal.temporal_runs` carries requests out: in a driver, or in a client that has no driver to ask.
"""
