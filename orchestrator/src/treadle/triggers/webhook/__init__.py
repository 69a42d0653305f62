"""HTTP requests that start runs.

General layout: `signatures` (who sent it), `requests` (what it says), `app` (what is said back), `server` (HTTP) and
`runner` (one hook in this process).
"""
