"""Objects that start runs: reported by their store (through Kafka or HTTP), or found by polling.

`notifications` parses messages of stores (pure), `listing_diff` finds new objects in a listing (pure), `seen_objects`
stores the seen and refused objects, and `poller` does the I/O.
"""
