"""Objects that start runs: told by their store (through Kafka or HTTP), or found by looking.

General layout: `notifications` (pure: what stores tell), `looking` (pure: what is new in a listing), `records` (what
was seen and what was refused, in the store), `poller` (the shell).
"""
