"""Functions that stay: one long call each, during which they do task after task and hold blocks for one another.

    driver                                                          function
    executor ── slot ──┬── life     when a member is used, left, replaced    handler ── take_part
                       ├── invoker  the long call ──payload: Join──>         member ──┬── machine  what it says and does
                       └── hub      coordinator  <──── one connection, both ways ─────┤── uplink
                                                                                      └── shelf    its blocks, served
    other members  <──────────────── blocks, over TCP (primitives.peers) ─────────────────┘

The dispatcher decides which task runs where: a slot has one member at a time, and offers it one task at a time. `life`
and `machine` decide and do no I/O. docs/members.md says what this is for.
"""

from __future__ import annotations

MEMBERS = "/members"
"""An executor whose functions may stay has a second one, called its own name and this: the same functions, staying."""
