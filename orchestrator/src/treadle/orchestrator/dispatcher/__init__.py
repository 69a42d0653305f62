"""From a planned segment to committed partitions. Each folder imports from those below it only (import-linter).

segments    a segment, a gang, a wide segment, a loop under way: asyncio shells, which do what is decided
driver_context  the driver process: the runs that it knows, the slots that they share, where gangs meet
blocks      where blocks are: served to other hosts, copied to the store, removed, named when they are lost
tasks       what tasks are told, and what their outcomes come to
decisions   which partition runs next, and what an ended attempt means: pure state machines
ledger      the ledger of a segment, its state, and the log of its attempts
orders      what an activity is told, and what it shows
"""
