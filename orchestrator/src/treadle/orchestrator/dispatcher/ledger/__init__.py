"""What is on record of a segment: its ledger, what that adds up to, and the log of its attempts."""
