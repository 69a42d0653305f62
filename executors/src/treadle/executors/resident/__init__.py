"""Resident functions: one long call each, which runs task after task and holds blocks for other members.

    driver                                                              function
    executor ── slot ──┬── lifetime          use, dismiss, replace          handler ── take_part
                       ├── invoker           the long call ──Join──>        member ──┬── machine  decides
                       └── coordinator_host  <──── one connection, both ways ────────┼── coordinator_client
                                                                                     └── block_server
    other members  <──────────────── blocks, over TCP (primitives.peers) ────────────────┘

The dispatcher decides which task runs where: a slot has one member at a time, and offers it one task at a time.
`lifetime` and `machine` decide and do no I/O. docs/members.md explains the purpose.
"""

from __future__ import annotations

MEMBERS = "/members"
"""Suffix of the name of a second executor, which runs the functions of a function executor as residents."""
