"""HTTP requests that start runs.

General layout: `signatures` (who sent it), `requests` (what it says), `answers` (what is said back), `app` and
`server` (HTTP).
"""
