"""Placement, order and folding of records: the same on every executor.

General layout: `keys` (valid keys and their equality), `key_columns` (many keys at once), `hashing`, `key_order` with
`stable_sort`; `partitioning` (the target of a record) with `range_partitioning`, `seeds` and `table_size`; `scatter`
(arrays to their targets); `folds`.
"""
