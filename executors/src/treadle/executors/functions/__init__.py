"""Provider functions as slots: the parts that AWS Lambda and Apache OpenWhisk share.

    driver                                                               function
    executor ── attempt ──┬── call_log       calls recorded in the store      handler ── worker process ── Runtime
                          ├── rate_limiter   limits the rate of calls
                          ├── invoker        one call of a provider ──payload──>
                          └── report_poller  reports stored as objects <──── reports, sealed; the first write wins

`call_records`, `failure_classification` and `memory_sizes` decide and do no I/O.
"""
