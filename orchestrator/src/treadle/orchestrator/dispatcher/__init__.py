"""From a planned segment to committed partitions: decisions, slots, ledger."""
