"""Running segments: the asyncio shells between decisions, slots, ledger and store."""
