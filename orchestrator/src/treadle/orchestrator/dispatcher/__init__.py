"""From a planned segment to committed partitions. A folder imports only from the folders below it (import-linter).

segments        segments, gangs, wide segments and loops: asyncio shells that carry out the decisions
lending         slots of several drivers for one gang: lent, and borrowed
driver_context  the driver process: its open runs and the slots that they share
blocks          blocks: served to other hosts, copied to the store, removed, and named when they are lost
tasks           the inputs of tasks, and the totals of their outcomes
decisions       the next partition, and the consequence of an ended attempt: pure state machines
ledger          the ledger of a segment, its state, and the log of its attempts
orders          the orders and the progress of an activity
"""
