"""The objects of a run in the store: sealed files, requests, copies of events, child runs."""
