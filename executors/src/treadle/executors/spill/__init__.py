"""What does not fit into an attempt's memory: sorted, grouped and gathered through unlinked files.

`sizes` says what records take, `room` is what an attempt may hold and the files for the rest, `rows` are the few
operations that lists, arrays and tables share; `sorting`, `grouping` and `parts` are the algorithms. Results are those
of the algorithms in memory, record for record: only the place of records that wait differs.
"""
