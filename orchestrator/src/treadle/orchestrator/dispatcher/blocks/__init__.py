"""Blocks: served to other hosts, copied to the store, removed, and named when they are lost."""
