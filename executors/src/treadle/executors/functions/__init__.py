"""Functions of a provider as slots: what AWS Lambda and Apache OpenWhisk have in common.

    driver                                                            function
    executor ── attempt ──┬── book      calls on record, in the store      handler ── worker process ── Runtime
                          ├── gate      how fast calls are made (rate)
                          ├── invoker   one call of a provider ──payload──>
                          └── mailbox   reports that come as objects <──────────── reports, sealed, first one wins

`calls`, `endings`, `rate` and `sizes` decide and do no I/O.
"""
