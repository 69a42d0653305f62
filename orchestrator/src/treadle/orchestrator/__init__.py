"""treadle's planner, ledger, dispatcher, Temporal workflow, client and command line."""
