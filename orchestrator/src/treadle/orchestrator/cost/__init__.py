"""What runs take and what that costs.

General layout: `usage` (the units, the same on every executor), `prices` (what a unit costs), `bill` (both together, by
node), `estimate` (from a plan, before the run), `spent` (from ledgers, while it runs and after), `idle` (of workers
that stay).
"""
