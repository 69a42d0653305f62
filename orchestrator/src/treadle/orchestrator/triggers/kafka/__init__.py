"""Kafka triggers: exactly one run for each matching record, or batch of records (docs/triggers.md).

General layout: `machine` (every decision, pure), `partition` (one partition's part of it), `instructions` and
`happenings` (what goes in and out), `judge` (which version decides, and what it says), `orders` (batches to starts),
`source` (what is asked of a broker), `confluent` (asked of a real one), `deadletters`, `thread` (the loop of one
trigger), `runner` (what the service starts).
"""
