"""Kafka triggers: exactly one run for each matching record, or batch of records (docs/triggers.md).

Pure modules: `machine` (all decisions), `partition_progress` (the state of one partition), `machine_events` (inputs and
outputs of the machine), `matching` (which version decides on a record, and how), `reader_settings` (settings for
reading topics) and `batch`.

Modules with I/O: `cluster_interface` (requests to a cluster), `confluent_cluster` (its implementation with confluent's
Consumer), `topics`, `offsets`, `acls`, `connectivity` and `health_check`; `dead_letters`; `payloads` (how runs receive
the events); `loop` (runs one trigger), `effects` (starts its runs), and `runner` (runs the loop in a thread of the
service).
"""
