"""HTTP requests that start runs.

`requests` checks and parses a request, `app` answers it, `server` and `protocol` serve HTTP, and `runner` is one hook
in this process.
"""
