"""Where records go, in which order, and how they are folded: the same on every executor.

General layout: `keys` (what a key is, and which are the same), `columns` (many at once), `hashing`, `order` with
`fast_sort`; `partitioning` (which target) with `ranges`, `seeds` and `table_bytes`; `scattering` (arrays to their
targets); `folds`.
"""
