"""Who takes part: members, their leases and channels, barriers, and where blocks are."""
