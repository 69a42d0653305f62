"""Kafka triggers: exactly one run for each matching record, or batch of records (docs/triggers.md).

General layout. Pure: `machine` (every decision), `partition` (one partition's part of it), `happenings` (what goes in
and out), `judge` (which version decides on a record, and what it says), `reading` (what a trigger wants of its
topics), `batch`. Shells: `source` (what is asked of a cluster), `cluster` (asked by confluent's Consumer), `topics`,
`positions`, `deadletters`, `payloads` (how runs get the events), `loop` (one trigger, step by step), `hands` (its
starts), `runner` (the loop in a thread, as the service runs it).
"""
