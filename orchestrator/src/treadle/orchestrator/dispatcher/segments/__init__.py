"""Segments under way: the asyncio shells between decisions, slots, ledger and store."""
