"""Where a run keeps its things in the store: sealed files, requests, copies of events, child runs."""
