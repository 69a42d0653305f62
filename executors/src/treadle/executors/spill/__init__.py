"""Algorithms for records that exceed an attempt's memory: sorting, grouping and gathering through unlinked files.

`size_estimate` estimates the memory of records, `memory_budget` holds the budget of an attempt and its spill files, and
`row_access` has the few operations that lists, arrays and tables share. `sorting`, `grouping`, `folding` and
`part_spill` are the algorithms. They return the same results as the in-memory algorithms, record for record.
"""
