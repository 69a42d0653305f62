"""The records of a segment: its ledger, the state that follows from it, and the log of its attempts."""
